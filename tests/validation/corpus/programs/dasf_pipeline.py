"""A pipeline of DASF on a seismic-like cube: normalise, keep, flatten, cluster.

``DASF_CHECKOUT`` names a checkout of DASF (github.com/discovery-unicamp/dasf-core). Its GPU, batch
system and notebook libraries are imported, but not used, here: empty modules stand in for them.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

NOT_USED = ["GPUtil", "dask_cuda", "dask_jobqueue", "dask_memusage", "gdown", "graphviz"]
NOT_USED += ["h5py", "ipywidgets", "zarr"]
EMPTY = """
class _Anything:
    def __init__(self, *args, **kwargs): pass
    def __getattr__(self, name): return lambda *args, **kwargs: None
def getGPUs(): return []
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return type(name, (_Anything,), {})
"""


def run_pipeline(directory: str) -> None:
    from dasf.datasets import DatasetArray
    from dasf.ml.cluster.kmeans import KMeans
    from dasf.pipeline import Pipeline
    from dasf.pipeline.executors import DaskPipelineExecutor
    from dasf.transforms import Normalize, PersistDaskData
    from dasf.transforms.base import Transform

    class Flatten(Transform):
        def transform(self, X):
            return X.reshape(-1, 1)

    cube = np.random.default_rng(1).normal(size=(128, 128, 96)).astype("float32")
    np.save(f"{directory}/cube.npy", cube)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    executor = DaskPipelineExecutor(local=True, cluster_kwargs=options)
    dataset = DatasetArray("cube", root=f"{directory}/cube.npy", chunks=(32, 128, 96))
    normalise, persist, flatten = Normalize(), PersistDaskData(), Flatten()
    kmeans = KMeans(n_clusters=4, max_iter=5, init_max_iter=1)
    pipeline = Pipeline("Seismic clusters", executor=executor)
    pipeline.add(dataset)
    pipeline.add(normalise.transform, X=dataset)
    pipeline.add(persist.transform, X=normalise.transform)
    pipeline.add(flatten.transform, X=persist.transform)
    pipeline.add(kmeans.fit_predict, X=flatten.transform)
    pipeline.run()
    labels = pipeline.get_result_from(kmeans.fit_predict)
    print(np.bincount(labels.compute()))
    executor.shutdown()
    executor.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        for name in NOT_USED:
            Path(directory, f"{name}.py").write_text(EMPTY)
        sys.path[:0] = added = [os.environ["DASF_CHECKOUT"], directory]
        os.environ["PYTHONPATH"] = os.pathsep.join([*added, os.environ.get("PYTHONPATH", "")])
        run_pipeline(directory)
