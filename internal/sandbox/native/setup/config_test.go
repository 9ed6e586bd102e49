package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/airlock-sandbox/airlock/internal/sandbox/walls"
)

func TestConfigArrivesWholeAndAlone(t *testing.T) {
	t.Parallel()
	want := Config{
		Hostname: "h", Mounts: []string{"/", "/dev"}, Scratch: &walls.Tmpfs{Bytes: 1, Inodes: 2}, Shm: walls.Tmpfs{Bytes: 3, Inodes: 4},
		Rlimits: [][3]uint64{{7, 1, 1<<64 - 1}}, Seccomp: []byte{0, 1, 255},
	}
	message, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(append(message, "next"...))
	body, err := walls.ReadFrame(r)
	if err != nil {
		t.Fatal(err)
	}
	var got Config
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, want); d != "" {
		t.Error(d)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "next" {
		t.Errorf("what follows the message became %q", rest)
	}
}

func TestMoreMountsThanAMessageCarriesAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := (Config{Mounts: make([]string, walls.MaxMounts+1)}).Encode(); !errors.Is(err, walls.ErrTooLong) {
		t.Errorf("encode: %v", err)
	}
}
