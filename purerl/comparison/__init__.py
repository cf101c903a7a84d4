"""Named settings compared on keys that no search has trained with."""
