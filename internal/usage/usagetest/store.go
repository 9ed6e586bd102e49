// Package usagetest reads back what was written down of executions, for tests. No part of the product does yet.
package usagetest

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/usage"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

type row struct {
	bun.BaseModel `bun:"table:executions,alias:execution"`

	ID          string `bun:"id,pk"`
	ContainerID string `bun:"container_id"`
	tenant.Owner
	Kind      usage.Kind    `bun:"kind"`
	Outcome   usage.Outcome `bun:"outcome"`
	ExitCode  int           `bun:"exit_code"`
	StartedAt wire.Micros   `bun:"started_at"`
	Wall      int64         `bun:"wall_usec"`
	CPU       int64         `bun:"cpu_usec"`
	Peak      int64         `bun:"peak_bytes"`
	In        int64         `bun:"bytes_in"`
	Out       int64         `bun:"bytes_out"`
}

// Executions gives those in a container that the caller may use, the oldest first.
func Executions(ctx context.Context, d *db.DB, caller tenant.Caller, containerID string) ([]usage.Execution, error) {
	var rows []row
	q := d.Read().NewSelect().Model(&rows).Where("execution.container_id = ?", containerID)
	if err := caller.Where(q).OrderExpr("execution.started_at, execution.id").Scan(ctx); err != nil {
		return nil, fmt.Errorf("list executions of container %s: %w", containerID, err)
	}
	out := make([]usage.Execution, len(rows))
	for i, r := range rows {
		out[i] = usage.Execution{
			ID: r.ID, ContainerID: r.ContainerID, Owner: r.Owner, Kind: r.Kind, Outcome: r.Outcome, ExitCode: r.ExitCode,
			StartedAt: r.StartedAt.Time(), Wall: time.Duration(r.Wall) * time.Microsecond, CPU: time.Duration(r.CPU) * time.Microsecond,
			PeakBytes: r.Peak, BytesIn: r.In, BytesOut: r.Out,
		}
	}
	return out, nil
}
