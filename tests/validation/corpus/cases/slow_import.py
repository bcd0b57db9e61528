"""Each worker imports a module that takes two seconds, in its first task."""

import os
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client


def analyse(number: int) -> int:
    import heavy_library

    time.sleep(0.02)
    return heavy_library.VALUE + number


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        module = Path(place) / "heavy_library.py"
        module.write_text("import time\nfor _ in range(40):\n    time.sleep(0.05)\nVALUE = 1\n")
        os.environ["PYTHONPATH"] = place
        sys.path.append(place)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            print(sum(client.gather(client.map(analyse, range(40)))))
