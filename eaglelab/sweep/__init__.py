"""Which settings to measure, how few loads that takes, and whether a setting can matter at all. Pure.

`matrix` makes settings of the values asked for, `one_load` says whether one load serves several step counts, `plan`
deals the settings out to loads, `relevance` says which all-reduce runs.
"""
