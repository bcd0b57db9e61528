"""The tables of a trace as Parquet files."""
