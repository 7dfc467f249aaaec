"""One file a run, to be sent to a colleague: everything is in it, and opening it asks nothing of any network."""
