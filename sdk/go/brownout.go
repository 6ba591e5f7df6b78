// Package brownout leaves optional content out when the header Brownout-Optional says so.
//
// A page often has parts it can do without: recommendations, comments, ratings. Whoever stands in
// front of the application (an Evenkeel agent) decides for each request which of them are
// computed, so that mandatory content stays fast when there is more load than capacity. This
// package reads that decision and tells what became of it. It decides nothing itself: without the
// header, or with one it does not understand, every part is computed.
//
//	http.ListenAndServe(address, brownout.Handler(mux))
//
//	if brownout.Optional(ctx, "recommendations") { // anywhere below, as deep as it may be
//		page.Recommendations = recommend(ctx, item)
//	}
package brownout

import (
	"context"
	"net/http"
	"sync"
)

const (
	requestHeader  = "Brownout-Optional"
	responseHeader = "Brownout-Served"
)

// Handler reads the decision on each request for next, and says on its response what was served:
// Brownout-Served is ?1, or ?0 if a part was asked for and refused. A response that lacks a part
// carries Cache-Control: no-store and nothing by which a cache could confirm it later. If next
// never asks, nothing is set; what it sets itself as Brownout-Served stays.
//
// The http.ResponseWriter that next is given works with http.NewResponseController, and is an
// http.Flusher and an http.Hijacker if the server's is.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := &request{decision: Read(r.Header.Values(requestHeader))}
		writer := &writer{ResponseWriter: w, request: request}
		ctx := context.WithValue(r.Context(), contextKey{}, request)
		next.ServeHTTP(writer.withInterfaces(), r.WithContext(ctx))
		writer.mark()
	})
}

// Optional tells whether this optional part is to be computed for the request that ctx belongs
// to; with the empty name, the page's only one. For a context of no request it always is.
//
// Ask before the first byte of the body leaves. If the head is gone and did not say that the
// response is lean, caches may keep it, so every later answer is yes.
func Optional(ctx context.Context, part string) bool {
	request, isRequest := ctx.Value(contextKey{}).(*request)
	return !isRequest || request.optional(part)
}

// Refused lists the parts that were asked for and answered no, in the order they were asked first.
func Refused(ctx context.Context) []string {
	request, isRequest := ctx.Value(contextKey{}).(*request)
	if !isRequest {
		return nil
	}
	request.mutex.Lock()
	defer request.mutex.Unlock()
	return append([]string(nil), request.refused...)
}

// Outgoing sets in the header of a request to an inner service that it obeys the decision on the
// request that ctx belongs to: a page is consistently full or lean if the decision falls once, at
// the edge. Without a decision the header is not touched.
func Outgoing(ctx context.Context, header http.Header) {
	request, isRequest := ctx.Value(contextKey{}).(*request)
	if isRequest && request.decision.value != "" {
		header.Set(requestHeader, request.decision.value)
	}
}

type contextKey struct{}

// request remembers what was asked. Several goroutines may work on one request.
type request struct {
	decision Decision

	mutex        sync.Mutex
	asked        bool
	refused      []string
	promisedFull bool
}

func (r *request) optional(part string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.asked = true
	if r.promisedFull || r.decision.Allows(part) {
		return true
	}
	if !contains(r.refused, part) {
		r.refused = append(r.refused, part)
	}
	return false
}

// markIn writes into the head of the response, as it leaves, what was served, and for caches.
func (r *request) markIn(header http.Header) {
	own := header.Values(responseHeader)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	lean := len(r.refused) > 0 || !Read(own).Allows("")
	// Caches may keep what is not marked, so from here on it has to be full.
	r.promisedFull = !lean
	if r.asked && len(own) == 0 {
		header.Set(responseHeader, servedText(lean))
	}
	if lean {
		forbidStoring(header)
	}
}

func servedText(lean bool) string {
	if lean {
		return "?0"
	}
	return "?1"
}

func forbidStoring(header http.Header) {
	for name := range header {
		// Whole applications write "ETag", which is not the name's canonical form, "Etag".
		if cacheable[http.CanonicalHeaderKey(name)] {
			delete(header, name)
		}
	}
	header.Set("Cache-Control", "no-store")
}

// What lets a cache keep a lean page, or confirm one later. The last three are for caches that
// heed them before Cache-Control (RFC 9213, Edge Architecture, nginx).
var cacheable = map[string]bool{
	"Etag":              true,
	"Last-Modified":     true,
	"Cache-Control":     true,
	"Cdn-Cache-Control": true,
	"Surrogate-Control": true,
	"X-Accel-Expires":   true,
}

func contains(parts []string, part string) bool {
	for _, known := range parts {
		if known == part {
			return true
		}
	}
	return false
}
