"""Sends the files of processes to the scheduler or to a storage while they are recorded.

A worker writes its files on its own host. If the client does not see that directory, as with pods
and batch jobs, the files are lost with the host. Therefore the worker also sends each block to the
scheduler when it was written. The scheduler appends the blocks to its own copies, and the client
copies these.

**Which workers send.** When a run is registered, the client puts a mark into the run's directory:
an empty file with the run's random id in its name. A process that sees the mark shares the client's
disk. The scheduler does the same, so a worker that shares the scheduler's directory does not send,
because the client copies its files from the scheduler's disk. A worker that sees no mark sends
(`targets.SchedulerSender`), even if it joins late. Names of hosts and paths are not compared.

**What is sent.** The worker's own file is the queue. A thread reads complete frames from the offset
up to which it has sent, sends them in one call for all files of the worker, and waits for the
answer, which contains the offset to send again from if some data did not reach the scheduler's
disk. So nothing is dropped, the memory is that of one message, and the offset identifies repeated
and late messages. The scheduler's copy is a prefix of the worker's file. Each segment of a long run
is a separate file. Each file has one writer: the scheduler's copies are new files with the suffix
``.received.msgpack``. If both are in one directory, readers use the longer one
(`dasfprof.database.multi.without_copies`).

**When.** Each time that the worker's task runs were written, once per flush interval, and at the
end. The scheduler's answer requests longer pauses if many workers send: 5 ms per worker. A message
takes 0.3 to 0.6 ms of its CPU (`benchmarks/bench_shipping.py`, on a busy machine). So with more
than 200 workers, a killed worker loses more than its last second.

**The scheduler's side** (`receiver`). A handler queues the message. Five times per second, a
separate thread checks and appends the blocks, so the event loop never waits for a disk. Waking a
thread for each message would cost as much as receiving it. When 64 MiB of messages wait for the
disk, further ones are refused, and workers repeat them. Blocks of workers that have left are
accepted, because the last blocks arrive after that. Blocks of another run and bytes that are not
frames are refused permanently, and a full disk is a temporary refusal. The worker logs the reason.
Blocks that are on disk stay, and the client asks a running worker for those that did not arrive.

**At the end.** The connections of a closing worker may be closed before its plugins are notified.
Then a thread with its own event loop and connection sends the remaining data, and the worker waits
for it for at most a second. A closing scheduler first asks its workers for their remaining data.

**Storage.** If the run's directory is a URL, there is no mark, and nothing is sent to the
scheduler. Every process, including the client and the scheduler, uploads to the storage
(`targets.StorageSender`). Both classes derive from `sender.Sender`.
"""
