"""What stands behind each Invoke command: options in, result out."""
