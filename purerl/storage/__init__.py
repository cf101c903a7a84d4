"""Files that hold results: folders, arrays, checkpoints. All are written atomically."""
