package file_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob/blobtest"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/db/dbtest"
	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

func TestUploadAnswersTheSpecExample(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		got := decode(t, x.send(form(
			part(`name="expires_in_seconds"`, "", "86400"),
			part(`name="file"; filename="reports/q3 größe.csv"`, "Content-Type: text/csv", "item,value\napple,30\n"),
		)), http.StatusOK)
		id, _ := got["id"].(string)
		if !file.ID(id).Valid() || !strings.HasPrefix(id, "file_01") || len(id) != len("file_01")+22 {
			t.Errorf("id %q", id)
		}
		delete(got, "id")
		want := map[string]any{
			"type": "file", "filename": "q3 größe.csv", "mime_type": "text/csv", "size_bytes": 20.0,
			"created_at": "2026-11-29T16:18:00.000000Z", "downloadable": false, "expires_at": "2026-11-30T16:18:00.000000Z",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestUploadTakesTheFieldsInEitherOrder(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		expiry := part(`name="expires_in_seconds"`, "", "3600")
		content := part(`name="file"; filename="a.txt"`, "", "text")
		for _, body := range []io.Reader{form(expiry, content), form(content, expiry)} {
			got := decode(t, x.send(body), http.StatusOK)
			if got["expires_at"] != "2026-11-29T17:18:00.000000Z" || got["size_bytes"] != 4.0 {
				t.Errorf("got %v", got)
			}
		}
	})
}

func TestUploadNames(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		long := strings.Repeat("é", 251) + ".txt" // 255 characters, 506 bytes
		for _, tt := range []struct{ disposition, want string }{
			{`filename="plain.txt"`, "plain.txt"},
			{`filename=unquoted.txt`, "unquoted.txt"},
			{`filename="..."`, "..."},
			{`filename=".bashrc"`, ".bashrc"},
			{`filename="a;b=c.txt"`, "a;b=c.txt"},
			{`filename="100%41.txt"`, "100%41.txt"},
			{`filename="$(id) & 'x'.txt"`, "$(id) & 'x'.txt"},
			{"filename=\"report\u202efdp.txt\"", "report\u202efdp.txt"},
			{"filename=\"e\u0301.txt\"", "e\u0301.txt"},
			{`filename="😀 family.txt"`, "😀 family.txt"},
			{`filename="` + long + `"`, long},
			{`filename="blob"`, "blob"},
			{`filename=""`, "unnamed.txt"},
			{`filename="/"`, "unnamed.txt"},
			{`filename="."`, "unnamed.txt"},
			{`filename="a/.."`, "unnamed.txt"},
		} {
			got := decode(t, x.send(form(part(`name="file"; `+tt.disposition, "Content-Type: text/plain", "x"))), http.StatusOK)
			if got["filename"] != tt.want {
				t.Errorf("%s: filename %q, want %q", tt.disposition, got["filename"], tt.want)
			}
		}
	})
}

func TestUploadRefusesForbiddenNamesNamingTheFile(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for _, d := range []string{
			`filename="a\"b.txt"`, `filename="a%22b.txt"`, `filename="a%0D%0ASet-Cookie: x"`, `filename="a%0ab"`,
			`filename="a<b"`, `filename="a>b"`, `filename="a:b"`, `filename="a|b"`, `filename="a?b"`, `filename="a*b"`,
			"filename=\"a\x00b\"", "filename=\"a\x1fb\"", "filename=\"a\tb\"", "filename=\"a\xffb\"",
			`filename="` + strings.Repeat("é", 256) + `"`,
			`filename="` + strings.Repeat("a", 4096) + `"`,
			`filename*=UTF-8''a%00b`, `filename*=UTF-8''%ff`, `filename*=nonsense`,
		} {
			r := x.send(form(part(`name="file"; `+d, "Content-Type: text/plain", "x")))
			wantError(t, r, http.StatusBadRequest, "invalid_request_error", "", "file: ")
		}
		x.nothingStored()
	})
}

func TestCase38FilePartIsKnownByItsNameNotByItsFilename(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		big := strings.Repeat("x", 1100<<10)
		for _, d := range []string{`name="file"`, `name=file`, `name="file"; filename=""`} {
			got := x.upload(d, big)
			if got["filename"] != "unnamed.txt" || got["size_bytes"] != float64(len(big)) {
				t.Errorf("%s: got %v", d, got)
			}
		}
	})
}

func TestCase38BrokenFormIsNamedForWhatItIs(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		ok := part(`name="file"; filename="a"`, "", "x")
		for name, tt := range map[string]struct {
			body, contentType, want string
		}{
			"no form":            {"just bytes", "application/octet-stream", "multipart/form-data"},
			"no type":            {"just bytes", "", "multipart/form-data"},
			"no boundary":        {"--b1\r\n", "multipart/form-data", "boundary"},
			"other boundary":     {"--b1\r\n" + ok + "\r\n--b1--\r\n", "multipart/form-data; boundary=b2", "closing boundary"},
			"cut in the file":    {"--b1\r\n" + ok, "multipart/form-data; boundary=b1", "closing boundary"},
			"cut after the file": {"--b1\r\n" + ok + "\r\n--b1\r\n", "multipart/form-data; boundary=b1", "closing boundary"},
			"empty body":         {"", "multipart/form-data; boundary=b1", "closing boundary"},
			"no disposition":     {"--b1\r\nX: y\r\n\r\nx\r\n--b1--\r\n", "multipart/form-data; boundary=b1", "Content-Disposition"},
			"no name":            {"--b1\r\nContent-Disposition: form-data; filename=a\r\n\r\nx\r\n--b1--\r\n", "multipart/form-data; boundary=b1", "no name"},
			"open quote":         {"--b1\r\nContent-Disposition: form-data; name=\"file\r\n\r\nx\r\n--b1--\r\n", "multipart/form-data; boundary=b1", "does not end"},
			"no file":            {"--b1\r\n" + part(`name="expires_in_seconds"`, "", "3600") + "\r\n--b1--\r\n", "multipart/form-data; boundary=b1", "file: this part is missing"},
			"two files":          {"--b1\r\n" + ok + "\r\n--b1\r\n" + ok + "\r\n--b1--\r\n", "multipart/form-data; boundary=b1", "more than once"},
			"unknown part":       {"--b1\r\n" + ok + "\r\n--b1\r\n" + part(`name="purpose"`, "", "x") + "\r\n--b1--\r\n", "multipart/form-data; boundary=b1", `"purpose"`},
		} {
			r := x.do("POST", "/v1/files", strings.NewReader(tt.body), "Content-Type", tt.contentType)
			if !strings.Contains(string(r.body), strings.ReplaceAll(tt.want, `"`, `\"`)) && !bytes.Contains(r.body, []byte(tt.want)) {
				t.Errorf("%s: %s does not contain %q", name, r.body, tt.want)
			}
			if r.status != http.StatusBadRequest {
				t.Errorf("%s: status %d", name, r.status)
			}
		}
		x.nothingStored()
	})
}

func TestCase39NamesInAnyScriptComeBackExactly(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for _, tt := range []struct{ disposition, want string }{
			{`filename="第1组.txt"`, "第1组.txt"},
			{`filename="naïve file.csv"`, "naïve file.csv"},
			{`filename*=UTF-8''%E7%AC%AC1%E7%BB%84.txt`, "第1组.txt"},
			{`filename="fallback.txt"; filename*=UTF-8''na%C3%AFve%20file.csv`, "naïve file.csv"},
			{`filename*=utf-8'en'na%C3%AFve.csv; filename="fallback.txt"`, "naïve.csv"},
			{`filename*=ISO-8859-1''na%EFve.csv`, "naïve.csv"},
			{`filename="Ελληνικά 🇬🇷.txt"`, "Ελληνικά 🇬🇷.txt"},
		} {
			got := x.upload(`name="file"; `+tt.disposition, "x")
			if got["filename"] != tt.want {
				t.Errorf("%s: filename %q, want %q", tt.disposition, got["filename"], tt.want)
			}
			again := decode(t, x.do("GET", fmt.Sprintf("/v1/files/%s", got["id"]), nil), http.StatusOK)
			if again["filename"] != tt.want {
				t.Errorf("%s: filename %q when read back, want %q", tt.disposition, again["filename"], tt.want)
			}
		}
	})
}

func TestCase40EmptyFilesWorkEverywhere(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		got := x.upload(`name="file"; filename="empty.bin"`, "")
		if got["size_bytes"] != 0.0 || got["mime_type"] != "application/octet-stream" {
			t.Errorf("upload: %v", got)
		}
		id, _ := got["id"].(string)
		f, body, err := x.files.Open(t.Context(), x.app, file.ID(id))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || len(b) != 0 || f.Size != 0 {
			t.Errorf("open: %d bytes, %v", len(b), err)
		}
		out := x.output("empty.csv", nil)
		for _, headers := range [][]string{nil, {"Range", "bytes=0-"}, {"Range", "bytes=-5"}} {
			r := x.do("GET", "/v1/files/"+string(out.ID)+"/content", nil, headers...)
			if r.status != http.StatusOK || len(r.body) != 0 || r.header.Get("Content-Length") != "0" {
				t.Errorf("download %v: %d %q", headers, r.status, r.header.Get("Content-Length"))
			}
		}
	})
}

func TestCase84PathsInNamesAreCut(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for _, tt := range []struct{ sent, want string }{
			{`../../etc/passwd`, "passwd"},
			{`..\\..\\windows\\x.txt`, "x.txt"},
			{`/etc/cron.d/job`, "job"},
			{`C:\\Users\\me\\a.txt`, "a.txt"},
			{`a;id`, "a;id"},
			{"a`id`", "a`id`"},
			{"-rf", "-rf"},
		} {
			got := x.upload(`name="file"; filename="`+tt.sent+`"`, "x")
			if got["filename"] != tt.want {
				t.Errorf("%s: filename %q, want %q", tt.sent, got["filename"], tt.want)
			}
		}
		// Browsers send single backslashes.
		if got := x.upload(`name="file"; filename="C:\dir\b.txt"`, "x"); got["filename"] != "b.txt" {
			t.Errorf("filename %q, want b.txt", got["filename"])
		}
	})
}

func TestCase46TypesAreToldByNameThenContentAndBytesStay(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		const sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
		const word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
		zip := "PK\x03\x04\x14\x00\x00\x00\x08\x00\r\n\x00\xff\xfe not a real archive"
		for _, tt := range []struct{ name, sent, content, want string }{
			{"book.xlsx", "", zip, sheet},
			{"BOOK.XLSX", "", zip, sheet},
			{"letter.docx", "application/octet-stream", zip, word},
			{"letter.docx", "", "plain text, whatever it says", word},
			{"data", "", "%PDF-1.7\n", "application/pdf"},
			{"data", "", "\x89PNG\r\n\x1a\n0000", "image/png"},
			{"data", "", "words", "text/plain"},
			{"data", "", "\x00\x01\x02\x03", "application/octet-stream"},
			{"data.csv", "text/plain; charset=utf-8", "a,b", "text/plain"},
			{"data.csv", "TEXT/CSV", "a,b", "text/csv"},
		} {
			header := ""
			if tt.sent != "" {
				header = "Content-Type: " + tt.sent
			}
			got := decode(t, x.send(form(part(`name="file"; filename="`+tt.name+`"`, header, tt.content))), http.StatusOK)
			if got["mime_type"] != tt.want {
				t.Errorf("%s sent as %q: %v, want %s", tt.name, tt.sent, got["mime_type"], tt.want)
			}
			id, _ := got["id"].(string)
			_, body, err := x.files.Open(t.Context(), x.app, file.ID(id))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(body)
			if err := errors.Join(err, body.Close()); err != nil || string(b) != tt.content {
				t.Errorf("%s: the bytes changed: %q, %v", tt.name, b, err)
			}
		}
	})
}

func TestUploadRefusesABrokenType(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for _, ct := range []string{"text", "text/", "/csv", ";", "a b/c", "text/plain; charset"} {
			r := x.send(form(part(`name="file"; filename="a.txt"`, "Content-Type: "+ct, "x")))
			wantError(t, r, http.StatusBadRequest, "invalid_request_error", "", "file: ")
		}
		x.nothingStored()
	})
}

func TestUploadWithoutATypeNeedsOneInLegacyOnly(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		body := func() io.Reader { return form(part(`name="file"; filename="a.txt"`, "", "x")) }
		wantError(t, x.send(body(), "Anthropic-Beta", "files-api-2025-04-14"), http.StatusBadRequest, "invalid_request_error", "", "Content-Type")
		x.nothingStored()
		decode(t, x.send(body()), http.StatusOK)
	})
}

func TestCase49TooLargeFileIs413NamingTheLimitAndLeavesNothing(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.files.MaxBytes = 1 << 20
		at := strings.Repeat("x", 1<<20)
		over := at + "x"
		chunked := func(r io.Reader) io.Reader { return struct{ io.Reader }{r} } // hides the length
		file := func(s string) io.Reader { return form(part(`name="file"; filename="a"`, "", s)) }
		for name, body := range map[string]io.Reader{
			"declared": file(over), "chunked": chunked(file(over)),
			"declared far over": file(strings.Repeat("y", 5<<20)), "chunked far over": chunked(file(strings.Repeat("y", 5<<20))),
		} {
			r := x.send(body)
			if r.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: status %d", name, r.status)
			}
			wantError(t, r, http.StatusRequestEntityTooLarge, "request_too_large", "", "1 MiB (1048576 bytes)")
		}
		x.nothingStored()
		if got := decode(t, x.send(file(at)), http.StatusOK); got["size_bytes"] != float64(len(at)) {
			t.Errorf("a file of exactly the limit: %v", got)
		}
		if got := decode(t, x.send(chunked(file(at))), http.StatusOK); got["size_bytes"] != float64(len(at)) {
			t.Errorf("a chunked file of exactly the limit: %v", got)
		}
	})
}

func TestCase49DeclaredSizeIsRefusedBeforeAByteOfTheFileIsSent(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.files.MaxBytes = 1000
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(conn, "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b1\r\nContent-Length: 9000000\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		// Less than the server waits for a silent client, and much more than an answer takes.
		if err := conn.SetReadDeadline(time.Now().Add(40 * time.Second)); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err := errors.Join(err, conn.Close()); err != nil || !strings.HasPrefix(line, "HTTP/1.1 413 ") {
			t.Errorf("answer %q, %v", line, err)
		}
	})
}

func TestDefaultLimitIs500MiB(t *testing.T) {
	t.Parallel()
	x := newFixture(t, dbtest.SQLite(t), blobtest.Folder(t))
	const limit = 500 << 20
	send := func(n int64) reply {
		head := "--b1\r\n" + part(`name="file"; filename="a"`, "", "")
		body := io.MultiReader(strings.NewReader(head), io.LimitReader(zeros{}, n), strings.NewReader("\r\n--b1--\r\n"))
		return x.send(body)
	}
	got := decode(t, send(limit), http.StatusOK)
	if got["size_bytes"] != float64(limit) {
		t.Errorf("got %v", got)
	}
	wantError(t, send(limit+1), http.StatusRequestEntityTooLarge, "request_too_large", "", "500 MiB (524288000 bytes)")
	if n := x.blobs(); n != 1 {
		t.Errorf("%d blobs, want 1", n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestExpiryIsADecimalIntegerInRangeGivenOnce(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		content := part(`name="file"; filename="a"`, "", "x")
		expiry := func(v string) string { return part(`name="expires_in_seconds"`, "", v) }
		for _, v := range []string{"3599", "7776001", "3600.5", "0x1000", "", "-1", "0", "1e4", "abc", " 3600", "+3600", "٣٦٠٠", strings.Repeat("9", 40)} {
			for _, body := range []io.Reader{form(expiry(v), content), form(content, expiry(v))} {
				wantError(t, x.send(body), http.StatusBadRequest, "invalid_request_error", "", "expires_in_seconds: ")
			}
		}
		wantError(t, x.send(form(content, expiry("3600"), expiry("3600"))), http.StatusBadRequest, "invalid_request_error", "", "more than once")
		x.nothingStored()
		for _, v := range []string{"3600", "7776000", "0003600"} {
			decode(t, x.send(form(content, expiry(v))), http.StatusOK)
		}
	})
}

func TestAbortedUploadLeavesNothing(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(x.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(conn, "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b1\r\nContent-Length: 9000000\r\n\r\n--b1\r\n%s",
			part(`name="file"; filename="a"`, "", strings.Repeat("x", 2<<20)))
		if err != nil {
			t.Fatal(err)
		}
		tcp, _ := conn.(*net.TCPConn)
		if err := tcp.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		// The server answers only after it has cleaned up.
		b, err := io.ReadAll(conn)
		if err := errors.Join(err, conn.Close()); err != nil || !bytes.Contains(b, []byte(" 400 ")) {
			t.Errorf("answer %q, %v", b, err)
		}
		x.nothingStored()
	})
}

func TestCompressedUploadIsRefused(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		r := x.send(form(part(`name="file"; filename="a"`, "", "x")), "Content-Encoding", "gzip")
		wantError(t, r, http.StatusUnsupportedMediaType, "invalid_request_error", "", "Content-Encoding")
	})
}

func TestManyPartsAndHugePartHeadersAreRefused(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		unknown := make([]string, 10_000)
		for i := range unknown {
			unknown[i] = part(`name="expires_in_seconds"`, "", "3600")
		}
		if r := x.send(form(unknown...)); r.status != http.StatusBadRequest {
			t.Errorf("10,000 parts: %d", r.status)
		}
		huge := part(`name="file"; filename="`+strings.Repeat("x", 1<<20)+`"`, "", "x")
		if r := x.send(form(huge)); r.status != http.StatusBadRequest {
			t.Errorf("1 MiB header: %d", r.status)
		}
		x.nothingStored()
	})
}

func TestFormAroundTheFileIsBoundedToo(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.files.MaxBytes = 1000
		preamble := func(n int) io.Reader { // without a declared length
			return io.MultiReader(strings.NewReader(strings.Repeat("line\r\n", n)), form(part(`name="file"; filename="a"`, "", "x")))
		}
		wantError(t, x.send(preamble(1<<20)), http.StatusRequestEntityTooLarge, "request_too_large", "", "1000 bytes")
		x.nothingStored()
		decode(t, x.send(preamble(10)), http.StatusOK)
	})
}

func TestQuotaHoldsUnderConcurrentUploadsAndIsFreedByExpiryAndDeletion(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		x.files.QuotaBytes = 1000
		var wg sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for range 8 {
			wg.Go(func() {
				r := x.send(form(part(`name="file"; filename="a"`, "", strings.Repeat("x", 300)), part(`name="expires_in_seconds"`, "", "3600")))
				mu.Lock()
				statuses[r.status]++
				mu.Unlock()
			})
		}
		wg.Wait()
		if statuses[200] != 3 || statuses[400] != 5 {
			t.Errorf("statuses %v, want three accepted of eight", statuses)
		}
		if b := x.blobs(); b != 3 {
			t.Errorf("%d blobs, want 3", b)
		}
		body := func() io.Reader { return form(part(`name="file"; filename="a"`, "", strings.Repeat("x", 900))) }
		wantError(t, x.send(body()), http.StatusBadRequest, "invalid_request_error", "storage_quota_exceeded", "full")
		decode(t, x.send(body(), "Test-App", "two"), http.StatusOK)
		x.advance(2 * 3600e9)
		got := decode(t, x.send(body()), http.StatusOK)
		decode(t, x.do("DELETE", fmt.Sprintf("/v1/files/%s", got["id"]), nil), http.StatusOK)
		decode(t, x.send(body()), http.StatusOK)
		_, err := x.files.CreateOutput(t.Context(), x.app.Owner(), file.OutputParams{Filename: "o", Body: strings.NewReader(strings.Repeat("x", 500))})
		if !errors.Is(err, file.ErrQuota) {
			t.Errorf("output over the quota: %v", err)
		}
	})
}

func TestServiceUploadRecordsHashSizeAndOwner(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		c := x.app
		c.UserID, c.Scope = "u1", tenant.ScopeApp
		f, err := x.files.Upload(t.Context(), c, file.UploadParams{Filename: "a.txt", Body: strings.NewReader("hello")})
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte("hello"))
		got, err := x.files.Get(t.Context(), c, f.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.SHA256 != hex.EncodeToString(sum[:]) || got.Size != 5 || got.Owner != c.Owner() || got.Origin != file.OriginUpload || got.ExpiresAt != nil {
			t.Errorf("got %+v", got)
		}
	})
}

func TestOutputNamesAreMadeToFit(t *testing.T) {
	run(t, func(t *testing.T, x *fixture) {
		for name, want := range map[string]string{
			"a:b?.txt": "a_b_.txt", "a\\b": "a_b", "tab\there": "tab_here", "bad\xff.csv": "bad_.csv", "第1组.txt": "第1组.txt", "..": "unnamed",
		} {
			if f := x.output(name, []byte("x")); f.Filename != want {
				t.Errorf("%q became %q, want %q", name, f.Filename, want)
			}
		}
		x.files.MaxBytes = 10
		_, err := x.files.CreateOutput(t.Context(), x.app.Owner(), file.OutputParams{Filename: "big", Body: strings.NewReader("01234567890")})
		if !errors.Is(err, file.ErrTooLarge) {
			t.Errorf("an output over the limit: %v", err)
		}
	})
}

// A commit whose end the database did not tell may have happened. Its row needs the bytes; without one the sweep takes them.
func TestBytesOfACommitOfUnknownOutcomeStayForTheSweep(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	x := newFixture(t, d, blobtest.Folder(t))
	err := d.RunTx(t.Context(), func(ctx context.Context, tx db.Tx) error {
		// The constraint is checked at the commit, after every statement has succeeded.
		_, err := tx.ExecContext(ctx, `CREATE TABLE late (app TEXT REFERENCES apps(id) DEFERRABLE INITIALLY DEFERRED);
			CREATE TRIGGER late AFTER INSERT ON files BEGIN INSERT INTO late VALUES ('nobody'); END`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r := x.send(form(part(`name="file"; filename="a"`, "", "text")))
	if r.status != http.StatusInternalServerError || x.blobs() != 1 {
		t.Errorf("answered %d, %d blobs, want 500 and one", r.status, x.blobs())
	}
}
