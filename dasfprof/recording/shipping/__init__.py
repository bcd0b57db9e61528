"""Sends the files of processes to the scheduler or to a storage while they are recorded.

A worker writes its files to a disk of its host. If the client does not see that disk, as with pods
and batch jobs, the files are lost together with the host. Therefore the worker also sends each
block to the scheduler after writing it. The scheduler appends the blocks to its copies of the
files, and the client copies these copies.

**Which workers send.** When a run is registered, the client puts a mark into the run's directory:
an empty file with the run's random id in its name. A process that sees the mark shares the client's
disk. The scheduler also puts a mark into its directory. A worker that shares the scheduler's
directory therefore sees a mark and sends nothing: the client copies the worker's files from the
scheduler's disk. A worker that sees no mark sends its files (`targets.SchedulerSender`), even if it
joins late. Names of hosts and paths are not compared.

**What is sent.** The worker's file itself is the queue. A thread reads complete frames, starting at
the offset up to which it has sent the file. It sends the frames of all files of the worker in one
call, and waits for the answer. If some data did not reach the scheduler's disk, the answer contains
the offset from which the worker must send again. So no data is dropped, only one message is in
memory, and the scheduler recognizes repeated and late messages by the offset. The scheduler's copy
is a prefix of the worker's file. Each segment of a long run is a separate file. Each file has one
writer: the scheduler's copies are new files with the suffix ``.received.msgpack``. If the original
and the copy are in one directory, readers use the longer file
(`dasfprof.database.multi.without_copies`).

**When.** A worker sends each time after its task runs were written, once per flush interval, and at
the end. If many workers send, the scheduler's answer requests longer pauses: 5 ms per worker. A
message takes 0.3 to 0.6 ms of the scheduler's CPU (`benchmarks/bench_shipping.py`, on a busy
machine). So with more than 200 workers, a killed worker loses more than its last second.

**The scheduler's side** (`receiver`). A handler queues the message. Five times per second, a
separate thread checks and appends the blocks, so the event loop never waits for a disk. Waking a
thread for each message would cost as much as receiving the message. While 64 MiB of messages wait
for the disk, further messages are refused, and workers repeat them. The scheduler accepts blocks of
workers that have left, because a worker sends its last blocks after it has left. Blocks of another
run and bytes that are not frames are refused permanently. If the disk is full, blocks are refused
temporarily. The worker logs the reason of a refusal. Blocks on the scheduler's disk remain there.
The client asks a worker that is still running for blocks that did not arrive.

**At the end.** The connections of a closing worker may be closed before its plugins are notified.
Therefore another thread, with its own event loop and connection, sends the remaining data. The
worker waits for that thread for at most a second. A closing scheduler first asks its workers for
their remaining data.

**Storage.** If the run's directory is a URL, there is no mark, and nothing is sent to the
scheduler. Every process, including the client and the scheduler, uploads its files to the storage
(`targets.StorageSender`). Both sender classes derive from `sender.Sender`.
"""
