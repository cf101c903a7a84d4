"""`python -m purerl.cli`."""

from purerl.cli import main

raise SystemExit(main())
