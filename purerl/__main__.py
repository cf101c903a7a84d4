"""`python -m purerl`."""

from purerl.cli import main

raise SystemExit(main())
