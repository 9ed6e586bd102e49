package server

import (
	"testing"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestDiskGuardRefusesBulkFirstThenEveryWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		used       float64
		bulk, some bool
	}{
		{0.5, true, true}, {0.84, true, true}, {0.85, false, true}, {0.94, false, true}, {0.95, false, false},
	} {
		g := &guard{diskUsed: func(string) (float64, error) { return tt.used, nil }}
		if got := g.admitNew() == nil; got != tt.bulk {
			t.Errorf("at %.2f new data admitted: %v", tt.used, got)
		}
		err := g.admitWrite()
		if (err == nil) != tt.some {
			t.Errorf("at %.2f write admitted: %v", tt.used, err)
		}
		if e := wire.AsError(err); err != nil && (e.HTTPStatus() != 529 || e.RetryAfter == 0) {
			t.Errorf("refusal is %+v", e)
		}
	}
}

func TestMemoryGuardKeepsTheReserve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		total, available, reserve int64
		ok                        bool
	}{
		{32 << 30, 16 << 30, 0, true},
		{32 << 30, 3 << 30, 0, false}, // a tenth of 32 GiB
		{4 << 30, 2 << 30, 0, true},   // at most a quarter
		{4 << 30, 1 << 30, 0, false},
		{32 << 30, 1 << 30, 512 << 20, true},
	} {
		g := &guard{
			reserve:  tt.reserve,
			diskUsed: func(string) (float64, error) { return 0, nil },
			memory:   func() (int64, int64, error) { return tt.total, tt.available, nil },
		}
		if err := g.admitSandbox(t.Context()); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestMemoryOfThisHostIsRead(t *testing.T) {
	t.Parallel()
	total, available, err := readMemory()
	if err != nil || available <= 0 || available > total {
		t.Errorf("total %d, available %d, %v", total, available, err)
	}
}
