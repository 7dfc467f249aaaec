"""Two or more runs held against each other: what differs, how surely, why, and whether a gate holds."""
