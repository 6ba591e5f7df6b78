//! x
#[path = "common/policies.rs"]
mod policies;
#[path = "common/world.rs"]
mod world;

use evenkeel_core::request::Failure;
use world::{Behaviour, World, secs};

#[test]
fn measure() {
    for policy in policies::all() {
        // sinkhole
        let mut line = format!("{policy:45}");
        for failure in [Failure::ErrorReply, Failure::Unsent] {
            let mut w = World::new(policy, 3, 1).with_read_repair(0.0);
            w.run_until(secs(5.0));
            w.replica_does(2, Behaviour::Fails { after_ms: 0.1, failure });
            w.run_until(secs(35.0));
            w.replica_does(2, Behaviour::Serves { mean_ms: 10.0 });
            w.run_until(secs(45.0));
            w.run_until(secs(55.0));
            line += &format!("sink {:.4}/{:.4} after {:.3} {:.3} | ", w.share(2, secs(5.0)..secs(10.0)), w.share(2, secs(10.0)..secs(35.0)), w.share(2, secs(43.0)..secs(45.0)), w.share(2, secs(45.0)..secs(55.0)));
        }
        // cold slow
        let mut w = World::new(policy, 3, 1);
        w.replica_does(2, Behaviour::Serves { mean_ms: 100.0 });
        w.run_until(secs(5.0));
        line += &format!("cold {:.2} {:.2} {:.2} | ", w.share(2, secs(0.0)..secs(0.1)), w.share(2, secs(0.0)..secs(0.3)),w.share(2, secs(1.0)..secs(5.0)));
        // join
        let mut w = World::new(policy, 3, 1);
        w.run_until(secs(5.0));
        w.join();
        w.run_until(secs(25.0));
        line += &format!("join {:.3} {:.3} {:.3} {:.3} | ", w.share(3, secs(5.0)..secs(6.0)), w.share(3, secs(6.0)..secs(8.0)),w.share(3, secs(8.0)..secs(12.0)),w.share(3, secs(15.0)..secs(25.0)));
        // slow once
        let mut w = World::new(policy, 3, 1);
        w.run_until(secs(5.0));
        w.replica_does(2, Behaviour::Serves { mean_ms: 200.0 });
        w.run_until(secs(10.0));
        w.replica_does(2, Behaviour::Serves { mean_ms: 10.0 });
        w.run_until(secs(80.0));
        line += &format!("slow {:.3} {:.3} {:.3} {:.3} {:.3} | ", w.share(2, secs(6.0)..secs(10.0)), w.share(2, secs(11.0)..secs(15.0)),w.share(2, secs(20.0)..secs(30.0)),w.share(2, secs(40.0)..secs(50.0)),w.share(2, secs(70.0)..secs(80.0)));
        // hang
        let mut w = World::new(policy, 3, 1);
        w.run_until(secs(5.0));
        w.replica_does(2, Behaviour::Hangs);
        w.run_until(secs(35.0));
        line += &format!("hang {:.3} {:.3} wrong {} | ", w.share(2, secs(5.0)..secs(6.0)), w.share(2, secs(10.0)..secs(35.0)), w.wrong(secs(0.0)..secs(35.0)));
        // light
        let mut w = World::new(policy, 3, 1).with_rate(3.0);
        w.run_until(secs(600.0));
        let mut l = w.latencies_ms(secs(0.0)..secs(590.0));
        l.sort_by(f64::total_cmp);
        line += &format!("light n {} wrong {} max {:.0} p90 {:.0}", l.len(), w.wrong(secs(0.0)..secs(590.0)), l[l.len()-1], l[l.len()*9/10]);
        println!("{line}");
    }
}
