package container

import (
	"context"
	"time"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// CrashAt lets packing end at a step as the end of the process would, and a claim fail there.
func (s *Service) CrashAt(f func(step string) error) { s.crash = f }

// PackSteps are the steps of CrashAt, in order.
var PackSteps = []string{stepPackBlob, stepPackRow, stepUnpackImage, stepUnpackRow}

// ClaimSteps are those of a claim.
var ClaimSteps = []string{stepClaimImage, stepClaimRow}

// SweepYoungBlobs is SweepBlobs without the age that protects packing under way.
func (s *Service) SweepYoungBlobs(ctx context.Context) error { return s.sweepBlobs(ctx, -time.Hour) }

// Executions reads what was written down of a container.
func (s *Service) Executions(ctx context.Context, caller tenant.Caller, id ID) ([]Execution, error) {
	return s.executions(ctx, caller, id)
}
