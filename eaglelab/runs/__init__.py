"""What earlier runs left under logs/, read back."""
