//! Many runs on all cores, results in the order of the jobs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work` for every job, on as many threads as the machine has cores. `progress` is told
/// after each how many are done; results come in the order of the jobs.
pub(crate) fn run_all<J: Sync, R: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> R + Sync,
    progress: impl Fn(usize) + Sync,
) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(number) else { break };
                    let result = work(job);
                    *results[number].lock().expect("no job panics while it stores") = Some(result);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let taken = |slot: Mutex<Option<R>>| slot.into_inner().ok().flatten();
    results.into_iter().map(|slot| taken(slot).expect("every job was done")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        let reported = AtomicUsize::new(0);
        let squares =
            run_all(&jobs, |job| job * job, |_| _ = reported.fetch_add(1, Ordering::Relaxed));
        assert_eq!(squares, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
        assert_eq!(reported.into_inner(), 100);
    }
}
