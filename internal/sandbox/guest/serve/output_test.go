package serve

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func captured(limit int64, pieces ...string) (out string, dropped int64) {
	var b bytes.Buffer
	c := newCapture(limit, func(p []byte) { b.Write(p) })
	for _, p := range pieces {
		c.write([]byte(p))
	}
	dropped = c.close()
	return b.String(), dropped
}

func TestCaptureKeepsHeadAndTailAndCountsTheRest(t *testing.T) {
	t.Parallel()
	all := strings.Repeat("0123456789", 100)
	tests := []struct {
		name    string
		limit   int64
		in      string
		want    string
		dropped int64
	}{
		{"nothing", 100, "", "", 0},
		{"less", 100, "abc", "abc", 0},
		{"exactly", 10, "0123456789", "0123456789", 0},
		{"one more", 10, "0123456789a", "0123456\n... 1 bytes dropped ...\n89a", 1},
		{"much more", 10, all, "0123456\n... 990 bytes dropped ...\n789", 990},
		{"limit of one", 1, "abc", "a\n... 2 bytes dropped ...\n", 2},
		{"no bound", -1, all, all, 0},
		{"characters are not cut", 10, "éééééééééé", "ééé\n... 12 bytes dropped ...\né", 12},
		{"no characters at all", 10, strings.Repeat("\xff", 20), strings.Repeat("\xff", 7) + "\n... 10 bytes dropped ...\n" + strings.Repeat("\xff", 3), 10},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 3, 7, 1000} {
			t.Run(fmt.Sprintf("%s in pieces of %d", tt.name, size), func(t *testing.T) {
				t.Parallel()
				var pieces []string
				for in := tt.in; in != ""; {
					n := min(size, len(in))
					pieces, in = append(pieces, in[:n]), in[n:]
				}
				got, dropped := captured(tt.limit, pieces...)
				if got != tt.want || dropped != tt.dropped {
					t.Errorf("got %q, %d, want %q, %d", got, dropped, tt.want, tt.dropped)
				}
				if utf8.ValidString(tt.in) && !utf8.ValidString(got) {
					t.Errorf("a character was cut: %q", got)
				}
			})
		}
	}
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte("hello world, this is long enough"), int64(10), 3)
	f.Add([]byte("ééé\xff"), int64(1), 1)
	f.Fuzz(func(t *testing.T, in []byte, limit int64, size int) {
		limit, size = max(limit%200, 1), max(size%50, 1)
		var pieces []string
		for rest := string(in); rest != ""; {
			n := min(size, len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		got, dropped := captured(limit, pieces...)
		if dropped == 0 {
			if got != string(in) || int64(len(in)) > limit {
				t.Fatalf("got %q of %q", got, in)
			}
			return
		}
		head, rest, ok := strings.Cut(got, fmt.Sprintf("\n... %d bytes dropped ...\n", dropped))
		if !ok || int64(len(head)+len(rest)) > limit || int64(len(head)+len(rest))+dropped != int64(len(in)) ||
			!bytes.HasPrefix(in, []byte(head)) || !bytes.HasSuffix(in, []byte(rest)) {
			t.Fatalf("got %q of %q, %d dropped", got, in, dropped)
		}
	})
}

func TestEnvironReplacesAndAdds(t *testing.T) {
	t.Parallel()
	got := environ([]string{"A=1", "B=2"}, [][]byte{[]byte("B=3"), []byte("C=\xff"), []byte("C=5"), []byte("=x"), []byte("novalue")})
	if want := "A=1 B=3 C=5"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHasGroupTakesOnlyTheWholeLine(t *testing.T) {
	t.Parallel()
	status := "Name:\tx\\nGroups:\\t20001\nState:\tS\nGroups:\t20001 \nNStgid:\t5\n"
	for marker, want := range map[string]bool{"20001": true, "2000": false, "0001": false, "20": false} {
		if hasGroup([]byte(status), []byte(marker)) != want {
			t.Errorf("%s: want %v", marker, want)
		}
	}
	if hasGroup([]byte("Groups:\t20001"), []byte("20001")) || hasGroup(nil, []byte("1")) {
		t.Error("a first line or nothing counts")
	}
}
