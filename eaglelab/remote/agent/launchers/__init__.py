"""Ways to run a server on a host. One of them is one file, and all keep one contract (`contract.py`)."""
