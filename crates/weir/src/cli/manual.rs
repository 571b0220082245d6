//! The texts of `--help`: the manual.

pub(super) const ABOUT: &str = "\
A write path in front of any directory: small writes and syncs do not wait for its disk.

'weir mount SOURCE MOUNTPOINT' shows the files of SOURCE at MOUNTPOINT. A write to a page that is not in \
memory does not wait until the page has been read: its bytes are kept as a patch, and the page is read later \
or not at all. The files in SOURCE stay ordinary files. After unmounting they are complete without Weir; until \
then, change them through the mount only.

docs/SEMANTICS.md defines what write, fsync, close and a crash mean.";

pub(super) const AFTER: &str = "\
EXAMPLES:
  weir mount /srv/data /mnt/data       serve /srv/data at /mnt/data
  weir top                             watch what mounts are doing
  weir dashboard                       all mounts on a web page of this machine
  weir status /mnt/data                dirty, patched and fetched pages, and latencies
  weir sync /mnt/data                  write everything home and make it durable
  weir umount /mnt/data                write everything home, then unmount
  weir run -- rsync -a /etc /mnt/data  run a program that reads and writes without the kernel

EXIT STATUS:
  0  done
  1  failure: one line on standard error says what failed, on what, and what to do
  2  the command line or a configuration file is invalid; nothing was done

FILES:
  /etc/weir.toml, $XDG_CONFIG_HOME/weir/config.toml
      Configuration; see 'weir mount --help'.
  SOURCE/.weir/lock
      Locked while SOURCE is mounted; removed at the end. '.weir' is not shown in the mount, and must
      belong to this user alone.
  SOURCE/.weir/log, SOURCE/.weir/log-at
      The redo log, or its place if '--log' named another one. After a crash the next mount or 'weir recover'
      finds it there. SOURCE/.weir/id identifies the SOURCE that a log belongs to.
  /run/weir, $XDG_RUNTIME_DIR/weir, /tmp/weir-UID
      Control sockets, one for each mount, named by the mount's device number.
  /var/log/weir, $XDG_STATE_HOME/weir
      Logs of daemons in the background, one file for each mount.";

pub(super) const MOUNT: &str = "\
Serve the directory SOURCE at the empty directory MOUNTPOINT.

The command returns when the mount answers; the daemon runs in the background until 'weir umount', umount(8), \
'fusermount3 -u', SIGTERM, SIGINT or SIGHUP. In each case it writes everything home before it exits, and SOURCE \
stays locked against a second mount until then.

Ordinary users can mount too, with fusermount3 (package fuse3), on an empty directory that they may write.";

pub(super) const MOUNT_AFTER: &str = "\
MOUNT OPTIONS (-o):
  ro, rw                          as --read-only
  norecovery, noload              as --no-recovery
  allow_other                     as --allow-other
  fetch=, memory=, patch_memory=, dirty_expire=, order=, commit=, log=, log_size=,
  write_back=, write_back_interval=, dirty_max=, dirty_background=, record=, metrics=, transport=, names=, lane_users=
                                  as the long options
  lane, nolane                    as --lane
  direct_io                       every open bypasses the kernel's page cache
  dev, nodev, suid, nosuid, exec, noexec, atime, noatime
                                  as for mount(8); nodev and nosuid by default
  dev=on, suid=on                 the same as dev and suid, for 'mount -t' and fstab: mount(8) does not pass the plain
                                  words on
  remount                         change an existing mount: ro, rw, and dev, suid, exec, atime and their opposites;
                                  everything else stays as it was mounted
  fsname=NAME                     the source that mount(8) shows, instead of SOURCE: no other path
  entry_timeout=S, attr_timeout=S how long the kernel may remember names and attributes, seconds
  negative_timeout=S              the same for missing names, where names are case-sensitive: by default 1, and at
                                  most entry_timeout
  default_permissions, kernel_cache, auto_cache, relatime, async, ...
                                  accepted: always in force
  defaults, auto, noauto, user, users, nofail, _netdev, x-*, comment=
                                  ignored: for mount(8) and others
  All other options are refused by name. A comma inside a value is written '\\,'.

  A flag overrides -o; of contradicting -o options the last one counts.

MOUNT(8) AND FSTAB(5):
  mount -t fuse.weir SOURCE MOUNTPOINT -o memory=1G
  /srv/data  /mnt/data  fuse.weir  allow_other,memory=1G,nofail  0  0
      Both work after 'make install', which makes weir the helper of mount(8), /sbin/mount.fuse.weir.
      Without that link they work through mount.fuse3(8) of the package fuse3.
  mount -o remount,ro /mnt/data
  mount -o remount,rw /mnt/data
      remount,ro is refused (busy) while programs have files open for writing. When it returns, everything
      written before is home and durable. A mount made with ro cannot become rw: unmount it first.
  umount /mnt/data
      Returns when the mount is gone; the daemon then writes home what is left, and a 'weir mount' of the
      same SOURCE waits for it. Give umount(8) the mount point: it treats any directory as one, and says
      'not mounted' for SOURCE ('umount -l SOURCE' and 'weir umount SOURCE' work).

CONFIGURATION FILES:
  /etc/weir.toml and then $XDG_CONFIG_HOME/weir/config.toml (~/.config/weir/config.toml), or only
  the one given with --config. Keys are the long options; 'options' is an -o list. A table
  [mount.\"/mnt/data\"] is for that mount point only, and overrides the rest of its file. The user's
  file overrides the machine's, and the command line overrides both. Unknown keys are errors. The
  'source' of such a table is SOURCE for 'weir mount /mnt/data' and for weir@mnt-data.service.
    memory = \"1G\"
    options = \"noatime\"
    [mount.\"/mnt/data\"]
    source = \"/srv/data\"
    fetch = \"lazy\"
    allow-other = true

SIGNALS:
  SIGTERM, SIGINT, SIGHUP
      Write everything home, then unmount and exit. If programs still use the mount it is only detached:
      no other program can enter it, and the daemon ends when the last file is closed. A second signal
      writes everything home and ends the mount at once. If data cannot be written home, the daemon stays,
      keeps trying, and says so in its log: only SIGKILL makes it drop data.

LOGS:
  In the foreground to standard error; in the background to /var/log/weir/NAME.log (root) or
  $XDG_STATE_HOME/weir/NAME.log (~/.local/state/weir). NAME is the mount point with '/' as '-' (and '-' as
  '\\x2d'). A log that reaches 16 MiB is renamed to NAME.log.old, which replaces an older one.

FUSE OVER IO_URING:
  If the kernel has it and root has turned it on, requests come over io_uring. To turn it on, now and
  at every boot:
    echo 1 > /sys/module/fuse/parameters/enable_uring
    echo 'options fuse enable_uring=1' > /etc/modprobe.d/fuse.conf
  Weir never changes that setting. 'weir status' shows the transport of a mount.

ENVIRONMENT:
  XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR, HOME
      Directories of configuration, logs and control sockets.
  STATE_DIRECTORY
      Where redo logs of a SOURCE on another machine are, instead of /var/lib/weir (root) or
      $XDG_STATE_HOME/weir.
  PATH
      Search path for fusermount3.

EXAMPLES:
  weir mount /srv/data /mnt/data
  weir mount --memory 2G --fetch lazy --allow-other /srv/data /mnt/data
  weir mount -f --log-level debug ~/data ~/mnt
  weir mount --write-back adaptive --record /var/tmp/data.jsonl /srv/data /mnt/data
  weir mount -o ro,noatime /srv/data /mnt/data
  weir mount --metrics 9338 /srv/data /mnt/data

EXIT STATUS:
  0  the mount answers (in the foreground: it has ended, and everything is home)
  1  it could not be mounted, and nothing was changed (in the foreground: or data was lost)
  2  invalid options, values or configuration";

pub(super) const UMOUNT: &str = "\
Write everything home, then unmount, and wait until the daemon has exited.

MOUNTPOINT may be any path in the mount, or SOURCE. If something cannot be written home, the mount stays and the \
error names it: make room or repair the back end and try again. If programs use the mount, it stays and the error \
names them. If another mount namespace (a container, 'unshare --mount') also has the mount, it is unmounted here and \
stays mounted there: the command fails, and its error names a process of that namespace. The daemon ends with the \
last mount.";

pub(super) const UMOUNT_AFTER: &str = "\
EXAMPLES:
  weir umount /mnt/data
  weir umount --force /mnt/data

EXIT STATUS:
  0  everything is home and durable, and the mount is gone
  1  not everything: standard error says what
  2  the command line is invalid";

pub(super) const SYNC: &str = "\
Write everything of a mount home and make it durable there, like 'sync' for that mount alone. ('sync -f' and \
syncfs(2) do nothing for a mount: the kernel does not pass them to FUSE daemons of this kind.)

MOUNTPOINT may be any path in the mount.";

pub(super) const SYNC_AFTER: &str = "\
EXAMPLES:
  weir sync /mnt/data && make-snapshot /srv/data

EXIT STATUS:
  0  everything written before is home and durable
  1  not everything: standard error says what
  2  the command line is invalid";

pub(super) const RECOVER: &str = "\
Bring home what the redo log of SOURCE holds: data that was synced and not yet written home when the daemon died \
or the power failed. 'weir mount' does the same before it mounts. The log is found from SOURCE, wherever it is.

With --dry-run nothing is changed; a line for each file says what would be written where, what its size would be, and \
what would be left out and why.

It may be interrupted at any time and run again. If the log is damaged, the log and SOURCE are left as they are: \
standard error says what is wrong and where.";

pub(super) const RECOVER_AFTER: &str = "\
EXAMPLES:
  weir recover --dry-run /srv/data
  weir recover --log /dev/nvme0n1p3 /srv/data

EXIT STATUS:
  0  everything that was synced is home and durable
  1  not everything: standard error says why
  2  the command line is invalid";

pub(super) const RUN: &str = "\
Run a program, and the programs that it starts, with a library preloaded that replaces the C library's reads and \
writes. On files of mounts these go through memory shared with the daemon (the lane), without a system call. \
Everything that the library does not cover is done by the kernel as usual.

The program replaces this command, and so keeps its exit status, signals and terminal. With --report or --sync this \
command waits for the program instead, forwards signals, and exits with its status, or with 128 and a signal's number. A \
signal that is sent to both of them, as systemd does, reaches the program twice: set KillMode=mixed, and NotifyAccess=all \
if it notifies; sockets and watchdogs of systemd are for this command's process, and are not found by the program.

The program must be run by the daemon's user or one of --lane-users; otherwise it uses the mount through the kernel alone.";

pub(super) const RUN_AFTER: &str = "\
WHAT IS COVERED:
  read, write, pread, pwrite and their vectored forms, called through the C library. Not covered: stdio (fread,
  fprintf and the like), whose calls stay inside the C library; programs that are linked statically or make
  system calls themselves (Go); io_uring; files that are mapped, or that several programs write. All these use
  the mount through the kernel, and see the same files. docs/SEMANTICS.md has the exact rules.

REPORT:
  With --report this command waits for the program and forwards signals to it. The report then counts reads and
  writes on mounts by the lane and by the kernel, with reasons, for each program's name and in total, killed
  processes included. The exit status is the program's, or 128 plus the number of the signal that ended it. JSON fields: weir_version, command, exit_status, total, programs (by name); of total
  and each: processes, files_in_lane, lane and kernel (reads, read_bytes, writes, write_bytes),
  lane_appends, syncs, kernel_reads_because, kernel_writes_because. Fields and reasons may be added.

ENVIRONMENT:
  WEIR_PRELOAD
      Path of the library, if it is neither beside this command nor in ../lib/weir from there.
  LD_PRELOAD
      Present entries are kept, after the library.

SYNC:
  With --sync external fsync, fdatasync, syncfs and sync return at once on mounts with --order all. Output, signals
  to others, changes outside the mount and the exit status wait until what was synced before is durable; so do
  all calls that Weir does not know. If it cannot be made durable, the program and all that it started are killed, and this
  command exits with 74. With --sync every-write they wait until everything that was changed before is durable, synced or
  not. The library makes the calls that need not wait; the lane is not used. The report counts syncs, commits and waits. JSON fields:
  weir_version, command, exit_status, stopped_calls, promises, syncs_committed, commits (for_output, by_time, at_end), waits (count,
  p50_us, p99_us, max_us), syncs_done_at_once, group. Needs Linux 5.19. docs/SEMANTICS.md says what is covered.
  With --group NAME all 'weir run' of this user with that name are one session: what their programs send each other does not
  wait, and each report has the counts of all until then. A NAME has up to 64 letters, digits, dots, underscores and hyphens.

EXAMPLES:
  weir run -- postgres -D /mnt/data/pg
  weir run --sync external --report -- sh import.sh
  weir run --sync external --group shop -- redis-server redis.conf
  weir run --report -- tar -C /mnt/data -xf linux.tar
  weir run --report=/tmp/report.json -- make -C /mnt/data/build

EXIT STATUS:
  127  there is no such program
  126  it cannot be executed
  74   with --sync external or every-write: what was synced or changed cannot be made durable, and the program was killed
  1    the library is missing, or the report cannot be written, or no session can be begun
  2    the command line is invalid
  otherwise that of the program";

pub(super) const LOG: &str = "\
Show the superblock, the groups and the records of a redo log, from its checkpoint to its end, even if it is \
damaged or in use. With --format, make a file or device an empty log.

PATH is the directory that was served, or the log: a file or a block device. Files are shown with their \
current names. A summary at the end tells what recovery would do to each. For a log outside the directory that was \
served, --source names that directory.";

pub(super) const LOG_AFTER: &str = "\
EXAMPLES:
  weir log /srv/data
  weir log /dev/nvme0n1p3 --source /srv/data
  weir log /dev/nvme0n1p3
  weir log --format --force /dev/nvme0n1p3

EXIT STATUS:
  0  the log is intact
  1  it is damaged, or cannot be read: standard error says where and why
  2  the command line is invalid";

pub(super) const STATUS: &str = "\
Show the state of a mount, or of every mount that this user may ask about: dirty and patched pages, fetches made \
and avoided, waiting writers, errors, and how long requests took in the daemon. Counters run from the start of the mount.

Of a file in a mount, show how far it is on its way to SOURCE, which is also its extended attribute user.weir.state:
  dirty   some of it is in memory only, and lost in a crash
  logged  a crash loses nothing of it, but SOURCE does not have all of it
  home    SOURCE has all of it";

pub(super) const TOP: &str = "\
Watch what mounts are doing: how much is written, read and synced each second, how much is dirty, what is not home yet, \
how full the log is, who waits for what, and on which files requests wait.

The list has one line for each mount that this user may ask about; Enter opens the view of one. The figures come from the \
daemons' control sockets: the mounts themselves are not used, and a daemon that does not answer is shown as such.";

pub(super) const TOP_AFTER: &str = "\
KEYS:
  Up, Down, k, j      choose a mount; in its view, scroll (also PgUp, PgDn, Home, End)
  Enter, Right        open the mount's view
  Enter, Left, Esc    back to the list
  /, F4               type a filter: mounts with this text in their mount point or SOURCE; Esc takes it back
  s, F6               choose the column to sort by
  I                   reverse the order
  p                   pause, go on
  +, -                longer, shorter interval
  F1, h, ?            help
  Ctrl-L, Ctrl-Z      draw the screen anew; stop, until 'fg'
  q, F10, Ctrl-C      quit

COLUMNS:
  WR/s, WRITE/s       writes, and bytes written, each second
  RD/s, READ/s        the same of reads
  SYNC/s, REQ/s       syncs; requests that the kernel sent
  HOME/s              bytes written to SOURCE each second
  DIRTY, PATCH        memory that SOURCE does not have yet; memory in patches
  NAMES               changes of names that SOURCE does not have yet
  LOG%                share of the redo log in use
  WAIT                requests that wait now
  WR99, RD99, SYNC99  99 of 100 were answered within this, since the mount was made
  A narrow screen shows fewer of them. '-' stands for a figure that is not known, or not known yet.

SLOWEST FILES:
  Each daemon accounts how long late answers took, those to requests that had to wait, for 64 files at most: a file that
  takes the place of another begins at 0. WAIT/s is how long they waited each second, taken together; then late answers a
  second, the longest, the sum since the file is accounted, and how many wait now. A file whose path is not known without
  asking SOURCE has its number.

JSON (with --once --json):
  Of MOUNTPOINT an object, without it an array. Fields: mountpoint, source, pid, uptime_ms, interval_ms;
  rates (each second, null if the mount is younger than the interval): writes, write_bytes, reads, read_bytes, syncs, requests,
  fetched_pages, fetches_waited, fetches_avoided, home_requests, home_bytes, log_groups, log_bytes, lane_writes,
  bucket_requests, bucket_bytes,
  writers_blocked_fetch, writers_throttled, writers_paced, session_waits; dirty_bytes, watermark_low_bytes,
  watermark_high_bytes, patch_bytes, names_pending, log_used_bytes, log_capacity_bytes, writers_waiting; waiting, latency and
  sessions as 'weir status --json' has them; slow_files: name, answers and waited_ns (each second), write, read, sync
  (each count, total_ns, max_ns), waiting, oldest_ns. Of a daemon that does not answer: mountpoint, source, no_answer.
  Fields may be added; none changes its meaning.

ENVIRONMENT:
  NO_COLOR, TERM
      No colours if NO_COLOR is set and not empty, or TERM is 'dumb' or not set.

EXAMPLES:
  weir top
  weir top /mnt/data
  weir top --once --interval 5s
  weir top --once --json /mnt/data | jq .rates.write_bytes

EXIT STATUS:
  0  left by a key; with --once: every daemon has answered
  1  with --once: a daemon did not answer
  2  the command line is invalid, or there is no terminal and --once is not given
  128 plus the number of the signal that ended it (SIGTERM, SIGINT, SIGHUP)";

pub(super) const STATUS_AFTER: &str = "\
JSON:
  Of a mount an object, of all mounts an array of them. Fields:
    weir_version, pid, source, mountpoint, uptime_ms
    fetch_policy        as --fetch
    write_back          as --write-back
    transport           how requests come from the kernel: \"io-uring\" or \"device\"
    metrics             where metrics are served, such as \"127.0.0.1:9338\", or empty
    read_only, direct   direct: files are transferred with O_DIRECT
    transfer            \"ring\" (io_uring) or \"threads\"
    resident_bytes      memory of the daemon as the kernel counts it
    stopping            whether a signal is ending it, or it has ended and is being brought home
    stats               counters: writes, write_bytes, reads, read_bytes, read_hits, read_misses,
                        patch_writes, fetched_pages, gap_pages, fetch_commands, fetches_waited,
                        fetches_avoided, readahead_pages, writers_blocked_fetch,
                        writers_throttled, writers_paced, gap_pages_written, destage_commands, destage_bytes,
                        fetch_errors, destage_errors, sync_errors, log_records, log_bytes, log_groups,
                        log_blocks, log_errors, spilled, log_reads, log_read_blocks,
                        log_read_errors, log_redos, evictions, dirtied_pages, cleaned_pages, ghost_hits,
                        ghost_misses;
                        of the last sampling interval, adaptive write-back only:
                        dirtied_last_interval, cleaned_last_interval;
                        as of now: writers_waiting, files, pages, frames, dirty_pages,
                        patched_pages, spilled_pages, spill_index_bytes, patch_bytes,
                        patch_bytes_max, fetches_in_flight, destages_in_flight,
                        oldest_dirty_ms, memory_bytes, memory_bytes_max,
                        log_used_bytes, log_capacity_bytes, dirty_memory_pages,
                        watermark_high_pages, watermark_low_pages, watermark_max_pages,
                        pressure_pages, dirty_bound_pages, cache_pages
    names               of a mount with --names behind, otherwise null: pending (changes that SOURCE does not
                        have), refused and refused_paths (those that SOURCE refused, and some of them),
                        conflicts and conflict_paths (names that another program took in SOURCE since the
                        mount was made, and the last of them)
    requests            FUSE requests that the kernel sent, by kind: lookup, getattr, open, write and so on
    notifications       what the kernel was told to drop from its caches
    waiting             requests that wait now: writes, reads, syncs, others, oldest_ns (how long the oldest has waited)
    slow_files          files on which requests waited longest, 64 at most, and on which requests wait now: node (the number
                        that stat(2) shows), path (null if it is not known without asking SOURCE), write, read and sync
                        (answers that came late: count, total_ns, max_ns), unseen_ns (at most so much before the file
                        was accounted), waiting, oldest_ns
    latency             write, read, sync: each count, sum_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns
  Fields may be added; none changes its meaning.
  With --requests: mountpoint, requests, total, notifications.
  Of a file: path, state.

PROMETHEUS:
  With --prometheus: metrics in the text format, of one mount or all. weir_up is 0 for a mount whose daemon does not answer.
  'weir mount --metrics' serves the same. contrib/prometheus has alerts, contrib/grafana a dashboard.

EXAMPLES:
  weir status
  weir status /mnt/data
  weir status /mnt/data/mail.db
  weir status --requests /mnt/data
  weir status --json /mnt/data | jq .stats.fetches_avoided
  weir status --prometheus >/var/lib/prometheus/node-exporter/weir.prom

EXIT STATUS:
  0  shown (also if there is no mount)
  1  a daemon did not answer
  2  the command line is invalid";

pub(super) const DASHBOARD: &str = "\
Show all mounts that this user may ask about, and their sessions, on a web page that follows them each second: rates, dirty \
data and its watermarks over time, patches, names, the redo log, latencies and errors.

The page needs nothing of the network. The command serves it until it is interrupted, and mounts may come and go meanwhile.";

pub(super) const DASHBOARD_AFTER: &str = "\
SECURITY:
  By default only this machine reaches the page. On a loopback address, only programs of this user and root are answered: \
other users are refused.
  On other addresses everybody is answered who reaches them, without a password: what is shown includes the paths of mounts \
and of files in trouble. The page cannot change anything.
  Open it by an address or as localhost, not by another name: those are refused, since web sites could take such a name.

EXAMPLES:
  weir dashboard
  weir dashboard --listen 8080
  ssh -L 9337:localhost:9337 server weir dashboard

EXIT STATUS:
  1  the address cannot be listened on: standard error says why
  2  the command line is invalid";
pub(super) const ADVISE: &str = "\
Run CMD as it is, on its own files, and say whether Weir would make it faster.

CMD runs under strace(1), which records what it asks of the file system. Then a piece of that is done again, with other \
data, in a scratch directory beside its files: directly, on a mount, under 'weir run', and under 'weir run --sync external'. \
From what the calls took each way follows what CMD would take. The scratch directory is removed at the end; all this takes \
some seconds and at most some hundred MiB of space, or 2 GiB where 4 GiB are free. A summary is printed to standard error, since standard output is CMD's \
(with --trace: to standard output), and a page is written with what was found.";

pub(super) const ADVISE_AFTER: &str = "\
WHAT IS NOT SEEN:
  Reads and writes by memory mappings, io_uring and io_submit(2) are counted and not predicted. How calls of several processes
  delay each other is not modelled. CMD is slowed down while it is recorded, more the more calls it makes. Programs that are
  set-user-ID run without their privileges. What is brought home after CMD has ended is not part of the ratio. Processes that
  CMD leaves running when it ends go on, and are no longer recorded a second later.

WHERE IT TRIES:
  In .weir-advise-PID-N in the directory, and another one in $TMPDIR or /tmp. Nothing is tried where another user could replace
  what is made: in directories, or below directories, that belong to another user than root and this one, or that others may
  write and that are not sticky. The costs are then estimated. Run it as the user whose directory it is.
  What a program did outside of the directory is not done again. Configuration files do not concern the mounts of a trial.

SIGNALS:
  While CMD runs, they reach it, and the advice follows. SIGINT, SIGQUIT, SIGTERM and SIGHUP at other times end weir advise, which
  unmounts and removes what it made. Killed by SIGKILL it leaves CMD running, and its scratch directories and their mounts for
  some other weir advise to remove: the next one of this user in the same directory.

EXAMPLES:
  weir advise -- sqlite3 /srv/app/data.db '.read load.sql'
  weir advise --source /srv/mail --json advice.json -- sh -c 'deliver <mail'
  strace -f -y -ttt -T -o calls CMD; weir advise --trace calls --source /srv/data

EXIT STATUS:
  That of CMD, or 128 plus the number of the signal that ended it. With --trace 0. If there is no advice: 1, with one line
  that says why; 127 if there is no such program, 126 if it cannot be executed; 128 plus the number of the signal by which weir
  advise was ended.";
