"""Several hosts that are one server: who is which rank, what they wait for each other for, which of them died first."""
