package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// ReadJSON reads a body of one of our own routes into v: CheckJSON first, then member names exactly as
// declared, unknown members refused, kinds checked, each with the path in the message. An empty body is
// taken as {}.
func ReadJSON(r *http.Request, limit int64, v any) error {
	if err := checkJSONType(r); err != nil {
		return err
	}
	b, err := ReadBody(r, limit)
	if err != nil {
		return err
	}
	return ParseJSON(b, v)
}

// ParseJSON is ReadJSON for bytes already read.
func ParseJSON(b []byte, v any) error {
	if len(bytes.TrimSpace(b)) == 0 {
		b = []byte("{}")
	}
	if err := CheckJSON(b); err != nil {
		return err
	}
	if err := checkShape(b, v); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return Invalid("%s: %s does not fit.", pathOr(te.Field, "body"), te.Value)
		}
		if we, ok := errors.AsType[*Error](err); ok {
			return we
		}
		return Invalid("body: %s.", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// checkJSONType lets through what curl -d sends by default: keys travel in headers a form on a foreign
// page cannot set, so the type protects nothing here.
func checkJSONType(r *http.Request) error {
	ct := r.Header.Get("Content-Type")
	if ct == "" {
		return nil
	}
	t, _, err := mime.ParseMediaType(ct)
	if err == nil && (t == "application/json" || strings.HasSuffix(t, "+json") || t == "application/x-www-form-urlencoded") {
		return nil
	}
	return Invalid("Content-Type: %s is not accepted here; send application/json.", strconv.Quote(ct))
}

// WriteJSON writes v with the given status. An encoding error is returned before anything was sent.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	b, err := encodeJSON(v)
	if err != nil {
		return Internal(fmt.Errorf("encode answer: %w", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// encodeJSON is json.Marshal without the HTML escapes, which would only make text harder to read.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode json: %w", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// Page is the answer of every list of ours. NextPage is null on the last page.
type Page[T any] struct {
	Data     []T     `json:"data"`
	NextPage *string `json:"next_page"`
}

func pathOr(path, other string) string {
	if path == "" {
		return other
	}
	return path
}
