package usage

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/airlock-sandbox/airlock/internal/db"
)

// Log holds executions until they are written, together and soon. Its fields are set before the first use.
type Log struct {
	DB  *db.DB
	Log *slog.Logger // nil = discard

	mu      sync.Mutex
	rows    []Execution
	dropped int64
}

// most bounds what waits for a database that cannot be reached.
const most = 100_000

// Add notes an execution that has ended; the next Flush writes it.
func (l *Log) Add(e Execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rows) < most {
		l.rows = append(l.rows, e)
		return
	}
	if l.dropped++; l.dropped == 1 {
		l.log().Error("executions are dropped: too many wait for the database")
	}
}

// Dropped counts those that could not be written down.
func (l *Log) Dropped() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// Flush writes the executions that have ended. Whoever has the Log calls it once a second, so that a command does not
// wait for the disk: a server that is killed loses the accounts since then. What cannot be written is kept for the
// next call. Executions are the facts of whoever bills, so nothing removes them.
func (l *Log) Flush(ctx context.Context) error {
	rows := l.take()
	if len(rows) == 0 {
		return nil
	}
	err := insertExecutions(ctx, l.DB, rows)
	if err == nil {
		return nil
	}
	if len(rows) == 1 {
		l.giveBack(rows)
		return err
	}
	return l.writeApart(ctx, rows)
}

// writeApart writes executions one by one after all of them together have failed, so that one that the database does not
// take holds up no other: it is at fault, and dropped, if a later one is taken.
func (l *Log) writeApart(ctx context.Context, rows []Execution) error {
	const patience = 3 // in a row: the database is at fault
	var refused []Execution
	var errs []error
	for i, e := range rows {
		err := insertExecutions(ctx, l.DB, rows[i:i+1])
		if err == nil {
			l.drop(ctx, refused, errs)
			refused, errs = nil, nil
			continue
		}
		refused, errs = append(refused, e), append(errs, err)
		if len(refused) == patience {
			l.giveBack(rows[i+1:], refused) // next time the others come first
			return errors.Join(errs...)
		}
	}
	l.giveBack(refused)
	return errors.Join(errs...)
}

// drop leaves executions to the operator's log.
func (l *Log) drop(ctx context.Context, bad []Execution, errs []error) {
	l.mu.Lock()
	l.dropped += int64(len(bad))
	l.mu.Unlock()
	for i, e := range bad {
		l.log().ErrorContext(ctx, "execution dropped: the database does not take it", "error", errs[i], "execution_id", e.ID,
			"container_id", e.ContainerID, "owner_app", e.Owner.AppID, "kind", e.Kind, "outcome", e.Outcome,
			"cpu_usec", e.CPU.Microseconds(), "wall_usec", e.Wall.Microseconds(), "bytes_in", e.BytesIn, "bytes_out", e.BytesOut)
	}
}

func (l *Log) take() []Execution {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows
	l.rows = nil
	return rows
}

// giveBack puts executions before those that have come meanwhile.
func (l *Log) giveBack(rows ...[]Execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = slices.Concat(append(rows, l.rows)...)
}

func (l *Log) log() *slog.Logger {
	if l.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l.Log
}
