"""For a team that runs Flink: a savepoint is checked, renamed and rescaled. YAML only.

ORDERS_SAVEPOINT names the savepoint, DSTL_STATE the folder for what is written.
"""
