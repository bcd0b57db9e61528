"""Brings blocks of workers whose disks nobody else sees to the scheduler's process.

A worker writes its files where it runs. Where the client does not see that directory, as in pods
and jobs, the file is gone with the worker. So, as each block was written, the worker also sends it
to the scheduler, which appends it to a file of its own; the client copies that from there.

**Which worker ships.** Nothing is guessed from names of hosts or paths. As a run is registered, the
client puts a mark into the directory, an empty file whose name has the run's random id (`places`).
A process that finds the mark in its own directory has the client's; one that does not has another.
The scheduler puts the same mark where it finds none, so workers that share a directory with it, and
not with the client, need not ship: the client copies their files from the scheduler's disk. A
worker that finds no mark ships (`targets.SchedulerSender`), also one that joins late.

**What is shipped.** The worker's own file is the queue. A thread reads whole frames from the offset
up to which it has sent, sends them in one call for all files of the worker, and waits for the
answer, which says from where to send again if something did not reach the scheduler's disk. So
there is nothing to drop, memory is that of one message, and a message that comes twice, or too
late, is recognised by its offset. What the scheduler has is a prefix of the worker's file, byte by
byte. Of a long run each segment is a file of its own. Each file has one writer: the scheduler's
copies are new files, ``….received.msgpack``. Where
both lie in one directory, readers take the longer one (`dasfprof.database.multi.without_copies`).

**When.** Each time that the worker's task runs were written, once in a flush interval, and at the
end. The scheduler's answer asks for longer pauses where many workers ship, 5 ms for each of them; a
message takes 0.3 to 0.6 ms of its CPU (`benchmarks/bench_shipping.py`, on a busy machine). So from
200 workers on a killed worker loses more than its last second.

**The scheduler's side** (`receiver`). A handler queues the message, and five times a second a
thread of its own checks and appends what came: the event loop never waits for a disk, and to wake a
thread for each message would cost as much as to receive it. Beyond 64 MiB of messages that wait for
the disk, it refuses further ones, which workers repeat. It takes blocks of workers that have
left: the last ones come after. Blocks of another run and bytes that are no frames are refused for
good, a full disk for now, with words that the worker logs; what was there stays, and the client
asks a worker that is still there for what did not arrive.

**At the end** of a closing worker, its connections may be closed before its plugins are told. Then
a thread with an event loop and a connection of its own ships the rest; the worker waits for it for
a second at most. A scheduler that closes asks its workers for theirs first.

**Or to a storage**, at the URL that is the run's directory. Then no mark is placed and nothing goes
to the scheduler: every process, the client's and the scheduler's too, sends to the storage
(`targets.StorageSender`). Both are a `sender.Sender`.
"""
