//! Nodes that forget prepared statements.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::request::{Prepare, Query};
use crate::{Envelope, ErrorCode, Opcode, Version};

use super::super::prepare::TELLINGS_MAX;
use super::super::testing::fake::{Peer, dialect, fake, limits, node, spawn, tagged};
use super::super::testing::run;
use super::super::{Ask, Known, NodeLimits, Prepared, ResultColumns};

fn known(id: u8, keyspace: Option<&str>) -> Arc<Known> {
    Arc::new(Known {
        id: vec![id; 4].into(),
        text: Arc::from(format!("SELECT {id}")),
        keyspace: keyspace.map(Arc::from),
        result: ResultColumns::default(),
    })
}

fn execute(statement: &Arc<Known>) -> Ask {
    let prepared = Prepared::One(Arc::clone(statement));
    Ask { opcode: Opcode::Execute, body: statement.id.clone(), prepared, ..tagged(0, 0) }
}

/// Knows the statements it was told; every request names, with four bytes each, what it needs.
async fn forgetful(mut peer: Peer, reported: Rc<RefCell<Vec<String>>>) {
    while let Some(request) = peer.work().await {
        if request.opcode == Opcode::Prepare {
            let text = Prepare::read(&request.body, request.version).unwrap().text.to_owned();
            if text == "SELECT 13" {
                peer.error(&request, ErrorCode::Invalid, &[]).await;
                continue;
            }
            reported.borrow_mut().push(text);
            peer.answer(&request, Opcode::Result, b"prepared").await;
            continue;
        }
        let is_told = |id: &&[u8]| reported.borrow().contains(&format!("SELECT {}", id[0]));
        let unknown = request.body.chunks(4).find(|id| !is_told(id));
        match unknown.map(<[u8]>::to_vec) {
            None => peer.answer(&request, Opcode::Result, b"done").await,
            Some(id) => {
                let more = [&[0, 4][..], &id].concat();
                peer.error(&request, ErrorCode::Unprepared, &more).await;
            }
        }
    }
}

async fn start()
-> (std::net::SocketAddr, Rc<RefCell<Vec<String>>>, super::super::testing::fake::Seen) {
    let reported = Rc::new(RefCell::new(Vec::new()));
    let of_fake = Rc::clone(&reported);
    let (address, seen) = fake(move |peer| forgetful(peer, Rc::clone(&of_fake))).await;
    (address, reported, seen)
}

#[test]
fn a_forgotten_statement_is_told_again_once_for_all_who_ask() {
    for version in [Version::V4, Version::V5] {
        run(async move {
            let (address, reported, _) = start().await;
            let node = node(address, limits());
            let statement = known(7, None);
            let asks: Vec<_> =
                (0..20).map(|_| spawn(&node, &dialect(version), execute(&statement))).collect();
            for ask in asks {
                assert_eq!(&ask.await.unwrap().unwrap().body[..], b"done");
            }
            assert_eq!(*reported.borrow(), ["SELECT 7"]);
            assert_eq!(node.counts().prepared_again, 1);
        });
    }
}

/// Says of the second request that it does not know its statement when the first was answered: it
/// looked before it was told, and its answer was long on the way. So many tellings are refused.
async fn late(
    mut peer: Peer,
    [asked, told]: [Rc<Cell<usize>>; 2],
    done: Rc<Cell<bool>>,
    refused: usize,
) {
    while let Some(request) = peer.work().await {
        if request.opcode == Opcode::Prepare {
            told.update(|told| told + 1);
            if told.get() <= refused {
                peer.error(&request, ErrorCode::Invalid, &[]).await;
            } else {
                peer.answer(&request, Opcode::Result, b"prepared").await;
            }
            continue;
        }
        asked.update(|asked| asked + 1);
        let is_late = asked.get() == 2;
        while is_late && !done.get() {
            tokio::task::yield_now().await;
        }
        if is_late || told.get() <= refused {
            peer.error(&request, ErrorCode::Unprepared, &[0, 4, 7, 7, 7, 7]).await;
        } else {
            peer.answer(&request, Opcode::Result, b"done").await;
        }
    }
}

#[test]
fn who_hears_late_that_it_was_forgotten_does_not_tell_it_again() {
    run(async {
        let [asked, told] = [(); 2].map(|()| Rc::new(Cell::new(0)));
        let done = Rc::new(Cell::new(false));
        let of_fake = [Rc::clone(&asked), Rc::clone(&told)];
        let is_done = Rc::clone(&done);
        let (address, _) =
            fake(move |peer| late(peer, of_fake.clone(), Rc::clone(&is_done), 0)).await;
        // Each on a connection of its own.
        let node = node(address, NodeLimits { streams_max: 1, ..limits() });
        let statement = known(7, None);
        let [first, second] =
            [(); 2].map(|()| spawn(&node, &dialect(Version::V4), execute(&statement)));
        assert_eq!(&first.await.unwrap().unwrap().body[..], b"done");
        done.set(true);
        assert_eq!(&second.await.unwrap().unwrap().body[..], b"done");
        assert_eq!((told.get(), node.counts().prepared_again), (1, 1));
        // What is forgotten later is told again.
        told.set(0);
        let again = node.ask(&dialect(Version::V4), execute(&statement)).await.unwrap();
        assert_eq!(&again.body[..], b"done");
        assert_eq!((told.get(), node.counts().prepared_again), (1, 2));
    });
}

#[test]
fn who_hears_late_of_a_telling_that_failed_tells_it_anew() {
    run(async {
        let counts = [(); 2].map(|()| Rc::new(Cell::new(0)));
        let done = Rc::new(Cell::new(false));
        let (of_fake, is_done) = (counts.clone(), Rc::clone(&done));
        let (address, _) =
            fake(move |peer| late(peer, of_fake.clone(), Rc::clone(&is_done), 1)).await;
        let node = node(address, NodeLimits { streams_max: 1, ..limits() });
        let statement = known(7, None);
        let [first, second] =
            [(); 2].map(|()| spawn(&node, &dialect(Version::V4), execute(&statement)));
        assert_eq!(first.await.unwrap().unwrap().opcode, Opcode::Error);
        done.set(true);
        assert_eq!(&second.await.unwrap().unwrap().body[..], b"done");
        assert_eq!((counts[1].get(), node.counts().prepared_again), (2, 2));
    });
}

#[test]
fn it_is_told_in_the_keyspace_in_which_it_was_prepared() {
    run(async {
        let (address, reported, seen) = start().await;
        let node = node(address, limits());
        let answer = node.ask(&dialect(Version::V4), execute(&known(5, Some("Shop")))).await;
        assert_eq!(&answer.unwrap().body[..], b"done");
        assert_eq!(*reported.borrow(), ["SELECT 5"]);
        let seen = seen.borrow();
        let prepares = seen.iter().position(|request| request.opcode == Opcode::Prepare).unwrap();
        let text =
            |request: &Envelope| Query::read(&request.body, Version::V4).unwrap().text.to_owned();
        assert_eq!(text(&seen[prepares - 1]), "USE \"Shop\"");
    });
}

#[test]
fn a_batch_may_need_several_and_what_nobody_knows_is_an_answer() {
    run(async {
        let (address, reported, _) = start().await;
        let node = node(address, limits());
        let several = [known(1, None), known(2, None), known(3, None)];
        let body = several.iter().flat_map(|known| known.id.to_vec()).collect::<Vec<_>>();
        let prepared = Prepared::Several(Rc::from(several));
        let batch = Ask { opcode: Opcode::Batch, body: body.into(), prepared, ..tagged(0, 0) };
        let answer = node.ask(&dialect(Version::V5), batch).await.unwrap();
        assert_eq!(&answer.body[..], b"done");
        assert_eq!(*reported.borrow(), ["SELECT 1", "SELECT 2", "SELECT 3"]);
        let unknown = Ask { prepared: Prepared::None, ..execute(&known(9, None)) };
        let answer = node.ask(&dialect(Version::V5), unknown).await.unwrap();
        assert_eq!((answer.opcode, &answer.body[..4]), (Opcode::Error, &[0, 0, 0x25, 0][..]));
        // The node cannot prepare it any more: its own words say why.
        let answer = node.ask(&dialect(Version::V5), execute(&known(13, None))).await.unwrap();
        assert_eq!((answer.opcode, &answer.body[..4]), (Opcode::Error, &[0, 0, 0x22, 0][..]));
    });
}

/// Knows a statement once it was told it so often.
async fn reluctant(mut peer: Peer, reported: Rc<Cell<usize>>, wants: usize) {
    while let Some(request) = peer.work().await {
        if request.opcode == Opcode::Prepare {
            reported.set(reported.get() + 1);
            peer.answer(&request, Opcode::Result, b"prepared").await;
        } else if reported.get() < wants {
            peer.error(&request, ErrorCode::Unprepared, &[0, 4, 6, 6, 6, 6]).await;
        } else {
            peer.answer(&request, Opcode::Result, b"done").await;
        }
    }
}

#[test]
fn a_node_that_forgets_at_once_is_told_several_times_and_then_believed() {
    run(async {
        for wants in [1, TELLINGS_MAX, TELLINGS_MAX + 1] {
            let reported = Rc::new(Cell::new(0));
            let count = Rc::clone(&reported);
            let (address, _) = fake(move |peer| reluctant(peer, Rc::clone(&count), wants)).await;
            let node = node(address, limits());
            let answer = node.ask(&dialect(Version::V4), execute(&known(6, None))).await.unwrap();
            assert_eq!(reported.get(), wants.min(TELLINGS_MAX));
            let expected = if wants > TELLINGS_MAX { &[0, 0, 0x25, 0][..] } else { &b"done"[..] };
            assert_eq!(&answer.body[..4], expected, "{wants}");
        }
    });
}

#[test]
fn who_began_to_tell_may_give_up_and_the_others_go_on() {
    run(async {
        let (address, reported, _) = start().await;
        let node = node(address, limits());
        let statement = known(4, None);
        let first = spawn(&node, &dialect(Version::V4), execute(&statement));
        let second = spawn(&node, &dialect(Version::V4), execute(&statement));
        // Until the telling has begun.
        while node.counts().prepared_again == 0 {
            tokio::task::yield_now().await;
        }
        first.abort();
        assert_eq!(&second.await.unwrap().unwrap().body[..], b"done");
        assert_eq!(*reported.borrow(), ["SELECT 4"]);
    });
}
