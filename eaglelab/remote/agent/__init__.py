"""What runs on the host: stdlib only, Python 3.8 and later.

The modules of this folder are joined into one file (`eaglelab.remote.payload`) that is fed to the host's Python
over stdin, so nothing is installed there. They import nothing but each other and the standard library.
"""
