package file

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// byteRange is the part of a file to send.
type byteRange struct {
	start, length int64
	partial       bool
}

func etag(f *File) string { return `"` + f.SHA256 + `"` }

// rangeOf reads a single byte range. Several ranges, other units and malformed ones get the whole file, as
// RFC 9110 allows; a range outside of the file is a 416.
func rangeOf(h http.Header, f *File) (byteRange, error) {
	whole := byteRange{length: f.Size}
	spec, ok := strings.CutPrefix(h.Get("Range"), "bytes=")
	if !ok || f.Size == 0 || strings.Contains(spec, ",") {
		return whole, nil
	}
	if cond := h.Get("If-Range"); cond != "" && cond != etag(f) {
		return whole, nil
	}
	from, to, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return whole, nil
	}
	start, startOK := position64(from)
	end, endOK := position64(to)
	switch {
	case from == "" && endOK: // the last n bytes
		if end == 0 {
			return whole, unsatisfiable(f)
		}
		start = max(0, f.Size-end)
		end = f.Size - 1
	case startOK && to == "":
		end = f.Size - 1
	case startOK && endOK && end >= start:
		end = min(end, f.Size-1)
	default:
		return whole, nil
	}
	if start >= f.Size {
		return whole, unsatisfiable(f)
	}
	return byteRange{start: start, length: end - start + 1, partial: true}, nil
}

func position64(s string) (int64, bool) {
	if s == "" || strings.TrimLeft(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 1<<63 - 1, true // more digits than a file can have bytes
	}
	return n, true
}

func unsatisfiable(f *File) error {
	e := wire.Invalid("Range: outside of the file's %d bytes.", f.Size)
	e.Status = http.StatusRequestedRangeNotSatisfiable
	return e
}

func notModified(h http.Header, f *File) bool {
	for v := range strings.SplitSeq(strings.Join(h.Values("If-None-Match"), ","), ",") {
		if v = strings.TrimPrefix(strings.TrimSpace(v), "W/"); v == etag(f) || v == "*" {
			return true
		}
	}
	return false
}

// contentDisposition gives the name twice: in ASCII for old clients, and exactly.
func contentDisposition(name string) string {
	ascii := strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e || r == '"' || r == '\\' || r == '%' {
			return '_'
		}
		return r
	}, name)
	exact := strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
	return `attachment; filename="` + ascii + `"; filename*=UTF-8''` + exact
}
