"""What a person sees of results: tables and pictures."""
