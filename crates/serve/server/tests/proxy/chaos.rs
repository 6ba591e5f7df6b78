//! Whatever goes wrong, clients and counters agree.

use super::*;

use evenkeel_core::Rng;
use evenkeel_testkit::http;

/// A replica that does one thing after another, by chance, and never answers who waits.
async fn moody(seed: u64) -> Replica {
    let rng = RefCell::new(Rng::seeded(seed));
    Replica::start(move |line| {
        if line.contains("/wait") {
            return Act::Stall(String::new());
        }
        match rng.borrow_mut().bits() % 12 {
            0..=3 => ok("fine"),
            4 => answer("404 Not Found", "gone"),
            5 => Act::Send("HTTP/1.1 304 Not Modified\r\n\r\n".into()),
            6 => answer("503 Service Unavailable", "busy"),
            7 => answer("500 Internal Server Error", "oops"),
            8 => Act::Cut("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".into()),
            9 => Act::Cut("\0garbage\r\n\r\n".into()),
            10 => Act::Close,
            _ => Act::Stall(String::new()),
        }
    })
    .await
}

/// What clients saw: responses by class of status, and timeouts.
type Saw = Rc<Cell<([u64; 5], u64)>>;

/// Asks, and counts the status that comes.
async fn ask(mut client: Peer, head: String, saw: Saw) {
    client.send(format!("{head}host: web\r\nconnection: close\r\n\r\n")).await;
    let head = client.head().await.expect("everybody is told something");
    while !client.is_closed().await {}
    let (mut responses, timeouts) = saw.get();
    responses[usize::from(status(&head)) / 100 - 1] += 1;
    saw.set((responses, timeouts + u64::from(status(&head) == 504)));
}

/// Asks where nobody answers, and leaves when a replica has it.
async fn leave(proxy: Rc<Proxy>, replica: Rc<Replica>, number: u64) {
    let mut client = Peer::new(TcpStream::connect(proxy.0.listens()[1]).await.unwrap());
    client.send(format!("GET /wait/{number}/ HTTP/1.1\r\nhost: web\r\n\r\n")).await;
    let path = format!("GET /wait/{number}/");
    until("a replica has it", || replica.saw(&path) > 0).await;
}

/// Responses by class as `/metrics` has them, and requests whose time is among the latencies.
fn scraped(admin: SocketAddr) -> ([u64; 5], u64) {
    let text = http::get(admin, "/metrics");
    let sum = |name: &str, label: &str| {
        let is_one = |line: &&str| line.starts_with(name) && line.contains(label);
        let values = text.lines().filter(is_one).filter_map(|line| line.rsplit(' ').next());
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    };
    let classes = ["\"1xx\"", "\"2xx\"", "\"3xx\"", "\"4xx\"", "\"5xx\""];
    let responses = classes.map(|class| sum("evenkeel_responses_total{", class));
    (responses, sum("evenkeel_request_duration_seconds_count{", "\"web\""))
}

#[test]
fn under_chaos_the_statuses_that_clients_saw_are_those_that_are_counted() {
    story(async {
        let replicas = [moody(1).await, moody(2).await, moody(3).await];
        let patient = Rc::new(moody(4).await);
        let more = format!(
            "[upstream.web.timeouts]\nattempt = '100ms'\ntotal = '250ms'\n\
             [upstream.web.safeguards]\nfailure_ratio_max = 1.0\nejection_failures = 0\n\
             [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'without'\n\
             [upstream.without]\nreplicas = ['{}']\n[admin]\naddress = '127.0.0.1:0'\n",
            patient.address
        );
        let proxy = Rc::new(Proxy::before(&replicas.each_ref(), &more));
        let saw = Saw::default();
        let mut rng = Rng::seeded(5);
        let mut clients = Vec::new();
        let (mut left, mut refused) = (0, 0);
        for number in 0..240_u64 {
            let head = match rng.bits() % 8 {
                0 => {
                    left += 1;
                    let leaves = leave(Rc::clone(&proxy), Rc::clone(&patient), number);
                    clients.push(tokio::task::spawn_local(leaves));
                    continue;
                }
                1 => format!("GET /wait/{number}/ HTTP/1.1\r\n"),
                2 => format!("POST /{number}/ HTTP/1.1\r\ncontent-length: 0\r\n"),
                3 => {
                    refused += 1; // before it is a request of the upstream's
                    format!("GET /{number}/ HTTP/1.1\r\nhost: other\r\n")
                }
                _ => format!("GET /{number}/ HTTP/1.1\r\n"),
            };
            let asked = ask(proxy.client().await, head, Rc::clone(&saw));
            clients.push(tokio::task::spawn_local(asked));
        }
        for client in clients {
            client.await.unwrap();
        }
        let (responses, timeouts) = saw.get();
        let answered: u64 = responses.iter().sum();
        println!("{responses:?}, {left} left, {timeouts} timed out");
        assert!(responses[1..].iter().all(|count| *count > 0) && left > 0, "{responses:?} {left}");
        assert_eq!(answered + left, 240);
        proxy.is_quiet(answered - refused).await;
        let total = proxy.upstreams().stats(0).total;
        assert!(timeouts > 0 && total.refused >= timeouts && total.abandoned == 0, "{total:?}");
        let abandoned = || proxy.upstreams().stats(1).total.abandoned;
        until("whoever left is counted", || abandoned() == left).await;
        let admin = proxy.0.admin().unwrap();
        let counted = tokio::task::spawn_blocking(move || scraped(admin)).await.unwrap();
        assert_eq!(
            counted,
            (responses, total.answered + timeouts),
            "whoever timed out has its time"
        );
    });
}
