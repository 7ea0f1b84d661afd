"""For a team on Spark: keyed state between daily runs. YAML only.

PAYMENTS names a folder of Parquet files by day, DSTL_STATE the folder for the state.
"""
