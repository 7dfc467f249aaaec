"""Proof on a real GPU, against a known truth (README.md says how to run it). Not part of the installed package."""
