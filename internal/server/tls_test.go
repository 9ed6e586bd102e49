package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestServesTLS(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	pool := selfSigned(t, &cfg)
	r := &running{t: t}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	ctx, drain := context.WithCancel(t.Context())
	r.ended = make(chan error, 1)
	go func() { r.ended <- s.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != 200 || !strings.HasPrefix(s.URL(), "https://") {
		t.Errorf("%s: %v", s.URL(), err)
	} else {
		_ = resp.Body.Close()
	}
	client.CloseIdleConnections()
	drain()
	if err := errors.Join(<-r.ended, s.Close()); err != nil {
		t.Error(err)
	}
}

// selfSigned makes a certificate for 127.0.0.1 and gives the pool that trusts it.
func selfSigned(t *testing.T, cfg *Config) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	cfg.TLS.Cert = write(t, string(cert))
	cfg.TLS.Key = write(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cert) {
		t.Fatal("certificate not understood")
	}
	return pool
}
