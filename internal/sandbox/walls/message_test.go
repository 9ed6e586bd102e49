package walls

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

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
	if _, err := Encode(make([]byte, maxMessage)); !errors.Is(err, ErrTooLong) {
		t.Errorf("encode: %v", err)
	}
	if err := ReadStatus(strings.NewReader("\xff\xff\xff\xff")); !errors.Is(err, ErrTooLong) {
		t.Errorf("read: %v", err)
	}
}
