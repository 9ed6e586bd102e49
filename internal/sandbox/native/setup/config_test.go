package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfigArrivesWholeAndAlone(t *testing.T) {
	t.Parallel()
	want := Config{
		Hostname: "h", Mounts: []string{"/", "/dev"}, Scratch: &Tmpfs{Bytes: 1, Inodes: 2}, Shm: Tmpfs{Bytes: 3, Inodes: 4},
		Rlimits: [][3]uint64{{7, 1, 1<<64 - 1}}, Seccomp: []byte{0, 1, 255},
	}
	message, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(append(message, "next"...))
	body, err := ReadFrame(r)
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

func TestStatusTellsWhatWentWrongInside(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := WriteStatus(&b, nil); err != nil {
		t.Fatal(err)
	}
	if err := ReadStatus(&b); err != nil {
		t.Errorf("success was read as %v", err)
	}
	if err := WriteStatus(&b, errors.New("mounts: EPERM")); err != nil {
		t.Fatal(err)
	}
	if err := ReadStatus(&b); err == nil || !strings.Contains(err.Error(), "mounts: EPERM") {
		t.Errorf("got %v", err)
	}
	if err := ReadStatus(&b); !errors.Is(err, io.EOF) {
		t.Errorf("a child that died was read as %v", err)
	}
}

func TestGiantMessagesAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := (Config{Seccomp: make([]byte, maxMessage)}).Encode(); !errors.Is(err, errTooLong) {
		t.Errorf("encode: %v", err)
	}
	if _, err := (Config{Mounts: make([]string, maxMounts+1)}).Encode(); !errors.Is(err, errTooLong) {
		t.Errorf("encode: %v", err)
	}
	if err := ReadStatus(strings.NewReader("\xff\xff\xff\xff")); !errors.Is(err, errTooLong) {
		t.Errorf("read: %v", err)
	}
}
