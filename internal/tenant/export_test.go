package tenant

// Remembered counts the callers that are remembered and those that are in flight.
func (s *Service) Remembered() (buckets, flying int) {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	return len(s.limiter.buckets), len(s.limiter.flight)
}
