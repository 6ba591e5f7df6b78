package brownout

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer marks the head of the response just before it leaves.
type writer struct {
	http.ResponseWriter
	request *request
	marked  bool
}

func (w *writer) mark() {
	if !w.marked {
		w.marked = true
		w.request.markIn(w.Header())
	}
}

// WriteHeader marks the final head; those that only inform (1xx) come before it.
func (w *writer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.mark()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(data []byte) (int, error) {
	w.mark()
	return w.ResponseWriter.Write(data)
}

// WriteString spares io.WriteString a copy.
func (w *writer) WriteString(text string) (int, error) {
	w.mark()
	return io.WriteString(w.ResponseWriter, text)
}

// ReadFrom lets the server send files by sendfile(2).
func (w *writer) ReadFrom(source io.Reader) (int64, error) {
	w.mark()
	return io.Copy(w.ResponseWriter, source)
}

// FlushError is what http.ResponseController calls to flush; the head leaves with it.
func (w *writer) FlushError() error {
	w.mark()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap gives http.ResponseController everything else.
func (w *writer) Unwrap() http.ResponseWriter {
	return w.ResponseWriter
}

// withInterfaces is the writer with the optional interfaces the server's has, for those who ask
// for them by type: HTTP/1 flushes and hijacks, HTTP/2 flushes.
func (w *writer) withInterfaces() http.ResponseWriter {
	_, flushes := w.ResponseWriter.(http.Flusher)
	_, hijacks := w.ResponseWriter.(http.Hijacker)
	switch {
	case flushes && hijacks:
		return struct {
			*writer
			flusher
			hijacker
		}{w, flusher{w}, hijacker{w}}
	case flushes:
		return struct {
			*writer
			flusher
		}{w, flusher{w}}
	case hijacks:
		return struct {
			*writer
			hijacker
		}{w, hijacker{w}}
	default:
		return w
	}
}

type flusher struct{ writer *writer }

func (f flusher) Flush() {
	_ = f.writer.FlushError() // as http.Flusher has it: there is nobody to tell
}

type hijacker struct{ writer *writer }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.writer.ResponseWriter.(http.Hijacker).Hijack()
}
