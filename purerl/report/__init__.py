"""Reports: tables, pictures and pages of results."""
