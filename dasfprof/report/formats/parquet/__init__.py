"""The tables of a trace as Parquet files, for any tool that reads them."""
