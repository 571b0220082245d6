//! Which thread serves which queue: the kernel puts a program's request into the queue of the CPU that the
//! program runs on, and requires a queue for every possible CPU.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The queues that one thread serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The CPU it is bound to.
    pub(super) cpu: Option<usize>,
    /// Its queues.
    pub(super) queues: Vec<usize>,
}

/// Numbers of CPUs in a file of /sys/devices/system/cpu; `None` if it cannot be read.
pub(super) fn listed(name: &str) -> Option<Vec<usize>> {
    parse(&std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).ok()?)
}

/// `0-3,8`.
fn parse(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(numbers)
}

/// CPUs this process may run on, of the first `queues`.
pub(super) fn allowed(queues: usize) -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..queues.min(CpuSet::MAX_CPU)).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Binds the calling thread to a CPU. A thread that cannot be bound serves the queue from another CPU.
pub(super) fn bind(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    match sched_setaffinity(None, &set) {
        Ok(()) => weir_backend::enable_busy_poll(),
        Err(error) => tracing::debug!("cannot bind a thread to CPU {cpu}: {error}"),
    }
}

/// Divides `queues` queues among threads: one thread for each CPU of `allowed`, with that CPU's queue and an even share
/// of the queues of other CPUs.
pub(super) fn share_out(queues: usize, allowed: &[usize]) -> Vec<Share> {
    let bound = |&cpu| Share { cpu: Some(cpu), queues: vec![cpu] };
    let mut shares: Vec<Share> = allowed.iter().map(bound).collect();
    if shares.is_empty() {
        shares.push(Share { cpu: None, queues: Vec::new() });
    }
    let others = (0..queues).filter(|queue| !allowed.contains(queue));
    for (turn, queue) in others.enumerate() {
        let share = turn % shares.len();
        shares[share].queues.push(queue);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse("0"), Some(vec![0]));
        assert_eq!(parse(""), None);
        assert_eq!(parse("0-x"), None);
    }

    #[test]
    fn every_queue_is_served_once() {
        let shares = share_out(5, &[1, 3]);
        assert_eq!(shares[0], Share { cpu: Some(1), queues: vec![1, 0, 4] });
        assert_eq!(shares[1], Share { cpu: Some(3), queues: vec![3, 2] });
        assert_eq!(share_out(2, &[]), [Share { cpu: None, queues: vec![0, 1] }]);
    }
}
