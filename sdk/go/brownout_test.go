package brownout_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel.dev/brownout"
)

var cacheable = map[string]string{
	"ETag":              `"1"`,
	"Last-Modified":     "Wed, 21 Oct 2015 07:28:00 GMT",
	"Cache-Control":     "public, max-age=60",
	"CDN-Cache-Control": "max-age=600",
}

func setCacheable(header http.Header) {
	for name, value := range cacheable {
		header.Set(name, value)
	}
}

// page asks for the parts in the query, deep below, and answers with their decisions.
func page(w http.ResponseWriter, r *http.Request) {
	answers := make(map[string]bool)
	if ask := r.URL.Query().Get("ask"); ask != "" {
		for _, part := range strings.Split(ask, ",") {
			answers[part] = deep(r.Context(), part)
		}
	}
	outgoing := http.Header{}
	brownout.Outgoing(r.Context(), outgoing)
	setCacheable(w.Header())
	text, _ := json.Marshal(map[string]any{"answers": answers, "outgoing": outgoing})
	_, _ = w.Write(text)
}

func deep(ctx context.Context, part string) bool {
	child, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	answer := make(chan bool)
	go func() { answer <- brownout.Optional(child, part) }()
	return <-answer
}

type answer struct {
	*http.Response
	text string
}

func (a answer) served() string { return strings.Join(a.Header.Values("Brownout-Served"), "|") }

// get sends one request; each decision is a line of Brownout-Optional of its own.
func get(t testing.TB, client *http.Client, url string, decision ...string) answer {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(decision) > 0 {
		request.Header["Brownout-Optional"] = decision
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response, string(text)}
}

func serve(t testing.TB, handler http.Handler) *httptest.Server {
	server := httptest.NewServer(brownout.Handler(handler))
	t.Cleanup(server.Close)
	return server
}

func serveHTTP2(t testing.TB, handler http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(brownout.Handler(handler))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func checkLean(t *testing.T, lean answer) {
	t.Helper()
	if lean.StatusCode != http.StatusOK || lean.served() != "?0" {
		t.Errorf("status %d, served %q", lean.StatusCode, lean.served())
	}
	control := lean.Header.Values("Cache-Control")
	if !reflect.DeepEqual(control, []string{"no-store"}) {
		t.Errorf("Cache-Control: %q", control)
	}
	for _, name := range []string{"ETag", "Last-Modified", "CDN-Cache-Control", "Vary"} {
		if values := lean.Header.Values(name); len(values) > 0 {
			t.Errorf("%s: %q", name, values)
		}
	}
}

func checkCacheable(t *testing.T, full answer) {
	t.Helper()
	for name, value := range cacheable {
		if full.Header.Get(name) != value {
			t.Errorf("%s: %q", name, full.Header.Get(name))
		}
	}
}

func TestTheTableOverASocket(t *testing.T) {
	type text struct {
		Begin, Fill, End string
		Times            int
	}
	var table struct {
		Cases []struct {
			Name   string
			Lines  []json.RawMessage
			Parts  map[string]bool
			Others bool
		}
	}
	data, err := os.ReadFile(filepath.Join("..", "conformance", "headers.json"))
	if err != nil || json.Unmarshal(data, &table) != nil {
		t.Fatal(err)
	}
	server := serve(t, http.HandlerFunc(page))
	sent := 0
	for _, c := range table.Cases {
		var lines []string
		canBeSent := true
		for _, raw := range c.Lines {
			var line string
			if json.Unmarshal(raw, &line) != nil {
				var parts text
				if err := json.Unmarshal(raw, &parts); err != nil {
					t.Fatal(err)
				}
				line = parts.Begin + strings.Repeat(parts.Fill, parts.Times) + parts.End
			}
			canBeSent = canBeSent && !strings.ContainsAny(line, "\x00\r\n")
			lines = append(lines, line)
		}
		if !canBeSent {
			continue
		}
		sent++
		if len(c.Parts) == 0 {
			c.Parts = map[string]bool{"some-other": c.Others}
		}
		var names []string
		full := true
		for name, allowed := range c.Parts {
			names = append(names, name)
			full = full && allowed
		}
		ask := url.QueryEscape(strings.Join(names, ","))
		got := get(t, server.Client(), server.URL+"?ask="+ask, lines...)
		var body struct{ Answers map[string]bool }
		if err := json.Unmarshal([]byte(got.text), &body); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(body.Answers, c.Parts) || (got.served() == "?1") != full {
			t.Errorf("%s: %v, served %q", c.Name, body.Answers, got.served())
		}
	}
	if sent < 90 {
		t.Errorf("only %d were sent", sent)
	}
}

func TestFullContentKeepsItsCaching(t *testing.T) {
	server := serve(t, http.HandlerFunc(page))
	for _, decision := range [][]string{nil, {"?1"}, {"?0;comments"}, {"garbage"}, {"?0", "?0"}} {
		full := get(t, server.Client(), server.URL+"?ask=comments", decision...)
		if full.served() != "?1" {
			t.Errorf("%q: %q", decision, full.served())
		}
		checkCacheable(t, full)
	}
}

func TestLeanContentIsA200ThatNoCacheKeeps(t *testing.T) {
	for _, server := range []*httptest.Server{
		serve(t, http.HandlerFunc(page)),
		serveHTTP2(t, http.HandlerFunc(page)),
	} {
		checkLean(t, get(t, server.Client(), server.URL+"?ask=comments,ratings", "?0;comments"))
	}
}

func TestAnApplicationThatNeverAsksSeesNothingChange(t *testing.T) {
	server := serve(t, http.HandlerFunc(page))
	unasked := get(t, server.Client(), server.URL, "?0")
	if unasked.served() != "" {
		t.Errorf("%q", unasked.served())
	}
	checkCacheable(t, unasked)
}

func TestTheDecisionIsPassedOnAsItCame(t *testing.T) {
	server := serve(t, http.HandlerFunc(page))
	for decision, expected := range map[string]string{
		`?0; a="x"`: `"outgoing":{"Brownout-Optional":["?0; a=\"x\""]}`,
		"?0;":       `"outgoing":{}`,
	} {
		if got := get(t, server.Client(), server.URL, decision); !strings.Contains(got.text, expected) {
			t.Errorf("%q: %s", decision, got.text)
		}
	}
	header := http.Header{"Brownout-Optional": {"?1"}}
	brownout.Outgoing(context.Background(), header)
	if header.Get("Brownout-Optional") != "?1" {
		t.Error("without a decision the header is not touched")
	}
}

func TestOutsideOfARequestEverythingIsComputed(t *testing.T) {
	ctx := context.Background()
	if !brownout.Optional(ctx, "comments") || brownout.Refused(ctx) != nil {
		t.Error("refused")
	}
}

func TestTheRequestKnowsWhatWasRefused(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, part := range []string{"comments", "ratings", "comments"} {
			brownout.Optional(r.Context(), part)
		}
		fmt.Fprint(w, brownout.Refused(r.Context()))
	}))
	for decision, expected := range map[string]string{
		"?0": "[comments ratings]", "?0;ratings": "[comments]", "?1": "[]",
	} {
		if got := get(t, server.Client(), server.URL, decision); got.text != expected {
			t.Errorf("%s: %s", decision, got.text)
		}
	}
}

func TestTheApplicationsOwnWordStays(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setCacheable(w.Header())
		if r.URL.Query().Has("ask") {
			brownout.Optional(r.Context(), "comments")
		}
		w.Header().Set("Brownout-Served", r.URL.Query().Get("served"))
	}))
	partly := get(t, server.Client(), server.URL+"?served=%3F0%3Bcomments", "?1")
	if partly.served() != "?0;comments" || partly.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", partly.Header)
	}
	// It was refused a part, and found another way to serve it: believed, but not cached.
	full := get(t, server.Client(), server.URL+"?served=%3F1&ask", "?0")
	if full.served() != "?1" || full.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", full.Header)
	}
	checkCacheable(t, get(t, server.Client(), server.URL+"?served=%3F1", "?0"))
}

// Every way in which a head can leave.
var ways = map[string]func(w http.ResponseWriter){
	"nothing":      func(http.ResponseWriter) {},
	"status":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
	"write":        func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
	"write string": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
	"copy":         func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("x")) },
	"copy a file": func(w http.ResponseWriter) {
		file, err := os.Open("go.mod")
		if err != nil {
			panic(err)
		}
		defer file.Close()
		_, _ = io.Copy(w, bufio.NewReader(file))
	},
	"flusher":    func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	"controller": func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
	"early hints": func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	},
	"raw ETag": func(w http.ResponseWriter) { w.Header()["ETag"] = []string{`"2"`} },
}

func TestEveryWayAHeadCanLeave(t *testing.T) {
	for name, leave := range ways {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			brownout.Optional(r.Context(), "comments")
			setCacheable(w.Header())
			leave(w)
		})
		for protocol, server := range map[string]*httptest.Server{
			"HTTP/1.1": serve(t, handler), "HTTP/2.0": serveHTTP2(t, handler),
		} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				lean := get(t, server.Client(), server.URL, "?0")
				if lean.Proto != protocol {
					t.Errorf("%s", lean.Proto)
				}
				checkLean(t, lean)
				full := get(t, server.Client(), server.URL, "?1")
				if full.served() != "?1" || full.Header.Get("Cache-Control") != "public, max-age=60" {
					t.Errorf("%v", full.Header)
				}
			})
		}
	}
}

func TestAQuestionAfterEarlyHintsStillCounts(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, brownout.Optional(r.Context(), "comments"))
	}))
	lean := get(t, server.Client(), server.URL, "?0")
	checkLean(t, lean)
	if lean.text != "false" {
		t.Error(lean.text)
	}
}

func TestAStreamIsMarkedWhenItBeginsAndStaysWhatItSaid(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setCacheable(w.Header())
		fmt.Fprintf(w, "%t ", brownout.Optional(r.Context(), "first"))
		w.(http.Flusher).Flush()
		fmt.Fprint(w, brownout.Optional(r.Context(), "second"))
	}))
	lean := get(t, server.Client(), server.URL, "?0")
	checkLean(t, lean)
	if lean.text != "false false" {
		t.Error(lean.text)
	}
	promised := get(t, server.Client(), server.URL, "?0;first")
	if promised.text != "true true" || promised.served() != "?1" {
		t.Errorf("%q %v", promised.text, promised.Header)
	}
	checkCacheable(t, promised)
}

func TestAFlushedHeadLeavesBeforeTheBody(t *testing.T) {
	released := make(chan struct{})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		brownout.Optional(r.Context(), "comments")
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		<-released
		fmt.Fprint(w, "data: 1")
	}))
	request, _ := http.NewRequest(http.MethodGet, server.URL, nil)
	request.Header.Set("Brownout-Optional", "?0")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	close(released)
	text, _ := io.ReadAll(response.Body)
	checkLean(t, answer{response, string(text)})
	if string(text) != "data: 1" {
		t.Errorf("%q", text)
	}
}

func TestAConditionalRequestIsNotToldThatTheLeanPageIsTheFullOne(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content := "full"
		if !brownout.Optional(r.Context(), "comments") {
			content = "lean"
		}
		w.Header().Set("ETag", `"`+content+`"`)
		http.ServeContent(w, r, "page.txt", time.Time{}, strings.NewReader(content))
	}))
	for decision, status := range map[string]int{"?1": http.StatusNotModified, "?0": http.StatusOK} {
		request, _ := http.NewRequest(http.MethodGet, server.URL, nil)
		request.Header.Set("Brownout-Optional", decision)
		request.Header.Set("If-None-Match", `"full"`)
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("%s: %d", decision, response.StatusCode)
		}
	}
}

func TestErrorsStayErrors(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		brownout.Optional(r.Context(), "comments")
		if r.URL.Path == "/panics" {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "broken", http.StatusInternalServerError)
	}))
	failed := get(t, server.Client(), server.URL, "?0")
	if failed.StatusCode != 500 || failed.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", failed.StatusCode, failed.Header)
	}
	if response, err := server.Client().Get(server.URL + "/panics"); err == nil {
		response.Body.Close()
		t.Error("the connection should have been cut")
	}
}

func TestHijack(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var connection net.Conn
		var err error
		if r.URL.Path == "/controller" {
			connection, _, err = http.NewResponseController(w).Hijack()
		} else {
			connection, _, err = w.(http.Hijacker).Hijack()
		}
		if err != nil {
			panic(err)
		}
		defer connection.Close()
		_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nmine")
	}))
	for _, path := range []string{"/controller", "/type"} {
		if got := get(t, server.Client(), server.URL+path, "?0"); got.text != "mine" {
			t.Errorf("%s: %q", path, got.text)
		}
	}
}

func TestDeadlinesReachTheServer(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		controller := http.NewResponseController(w)
		fmt.Fprint(w, controller.SetWriteDeadline(time.Now().Add(time.Minute)))
	}))
	if got := get(t, server.Client(), server.URL); got.text != "<nil>" {
		t.Error(got.text)
	}
}

// A writer of a test or of another middleware, with no more than it needs.
type plainWriter struct{ *httptest.ResponseRecorder }

type plain struct{ http.ResponseWriter }

type hijackable struct {
	plain
	err error
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, h.err }

func TestTheWriterHasTheInterfacesOfTheServersAndNoOthers(t *testing.T) {
	var flushes, hijacks bool
	var flushed error
	handler := brownout.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, flushes = w.(http.Flusher)
		_, hijacks = w.(http.Hijacker)
		flushed = http.NewResponseController(w).Flush()
	}))
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range []struct {
		writer           http.ResponseWriter
		flushes, hijacks bool
	}{
		{plain{recorder}, false, false},
		{plainWriter{recorder}, true, false},
		{hijackable{plain: plain{recorder}}, false, true},
	} {
		handler.ServeHTTP(c.writer, request)
		if flushes != c.flushes || hijacks != c.hijacks || (flushed == nil) != c.flushes {
			t.Errorf("%T: flushes %t %v, hijacks %t", c.writer, flushes, flushed, hijacks)
		}
		if !c.flushes && !errors.Is(flushed, http.ErrNotSupported) {
			t.Errorf("%T: %v", c.writer, flushed)
		}
	}
}

func TestConcurrentRequestsDoNotSeeEachOthersDecision(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var group sync.WaitGroup
		answers := make([]bool, 4)
		for number := range answers {
			group.Add(1)
			go func(number int) {
				defer group.Done()
				time.Sleep(time.Millisecond)
				answers[number] = brownout.Optional(r.Context(), "comments")
			}(number)
		}
		group.Wait()
		fmt.Fprint(w, answers)
	}))
	values := []string{"?0", "?1", "?0;comments", "?1;comments=?0"}
	expected := []bool{false, true, true, false}
	var group sync.WaitGroup
	for number := 0; number < 200; number++ {
		group.Add(1)
		go func(which int) {
			defer group.Done()
			got := get(t, server.Client(), server.URL, values[which])
			one := expected[which]
			same := fmt.Sprint([]bool{one, one, one, one})
			if got.text != same || (got.served() == "?1") != expected[which] {
				t.Errorf("%s: %s %s", values[which], got.text, got.served())
			}
		}(number % len(values))
	}
	group.Wait()
}

func TestQuestionsWhileTheHeadLeavesAreMarkedOrPromised(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := make(chan bool, 1)
		go func() { answer <- brownout.Optional(r.Context(), "comments") }()
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, <-answer)
	}))
	for range make([]struct{}, 300) {
		got := get(t, server.Client(), server.URL, "?0")
		if (got.text == "false") != (got.served() == "?0") {
			t.Fatalf("%s, but served %q", got.text, got.served())
		}
	}
}

func TestInnerServicesObeyTheDecisionOfTheEdge(t *testing.T) {
	inner := serve(t, http.HandlerFunc(page))
	edge := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, _ := http.NewRequestWithContext(r.Context(), "GET", inner.URL+"?ask=comments", nil)
		brownout.Outgoing(r.Context(), request.Header)
		response, err := inner.Client().Do(request)
		if err != nil {
			panic(err)
		}
		defer response.Body.Close()
		w.Header().Set("Brownout-Served", response.Header.Get("Brownout-Served"))
		_, _ = io.Copy(w, response.Body)
	}))
	lean := get(t, edge.Client(), edge.URL, "?0")
	checkLean(t, lean)
	if !strings.Contains(lean.text, `"comments":false`) {
		t.Error(lean.text)
	}
	if full := get(t, edge.Client(), edge.URL, "?0;comments"); full.served() != "?1" {
		t.Error(full.served())
	}
}
