"""dask.bag: one file of JSON lines (blocks), with dates parsed one by one (dates)."""

import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import dask.bag as db
import numpy as np
from dateutil import parser
from distributed import Client

REMEDIES = sys.argv[1:]


def event(line):
    record = json.loads(line)
    if "dates" in REMEDIES:
        time = datetime.strptime(record["time"], "%d %b %Y %H:%M")
    else:
        time = parser.parse(record["time"])
    return {"hour": time.hour, "day": time.day, "size": record["size"]}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path, random = Path(directory, "events.json"), np.random.default_rng(0)
        with path.open("w") as file:
            for number, size in enumerate(random.random(100_000).round(6).tolist()):
                time = f"{number % 28 + 1} Mar 2024 {number % 24}:{number % 60:02}"
                file.write(json.dumps({"time": time, "size": size}) + "\n")
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            size = "1MB" if "blocks" in REMEDIES else None
            table = db.read_text(str(path), blocksize=size).map(event)
            table = table.to_dataframe(meta={"hour": int, "day": int, "size": float})
            print(table.groupby("hour")["size"].sum().compute().sort_index().round(3).to_dict())
