// A schema registry for tests: franz-go's fake (srfake) behind a front that does what the fake does
// not.
//
// The front asks for a password, speaks TLS, refuses schemas as incompatible, fails, delays and
// drops requests where a test asks for it, and counts. It is controlled at an address of its own,
// which is plain HTTP also where the registry speaks TLS:
//
//	POST /control/fault?status=S&count=N[&delayMs=D][&retryAfter=R]
//	                        the next N requests are answered with the status S after D milliseconds;
//	                        with S = 0 they are only delayed; it replaces the fault before
//	POST /control/drop?count=N
//	                        the connections of the next N requests are closed without an answer
//	POST /control/compatibility?subject=S&mode=refuse|allow
//	                        whether new schemas of the subject are incompatible with those before
//	GET  /control/counts    requests by method and pattern of the path, as JSON
//
// Flags: --user U --password P (basic authentication); --cert FILE --key FILE (TLS), and with them
// --client-ca FILE (clients need a certificate of that authority).
//
// It prints two lines, the URL of the registry and the address of its control, and ends with its
// standard input.
package main

import (
	"bytes"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

const contentType = "application/vnd.schemaregistry.v1+json"

// Segments of a path after which a name or a number follows, and how that is counted.
var variable = map[string]string{
	"ids": "{id}", "guids": "{guid}", "subjects": "{subject}", "versions": "{version}",
	"config": "{subject}", "mode": "{subject}", "contexts": "{context}",
}

type fault struct {
	status     int
	count      int
	delay      time.Duration
	retryAfter string
}

type front struct {
	registry       *srfake.Registry
	user, password string
	mu             sync.Mutex
	fault          fault
	drops          int
	// Subjects that take no other schema.
	refuses map[string]bool
	counts  map[string]int
}

// pattern is the path with placeholders for names and numbers.
func pattern(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for index := 1; index < len(parts); index++ {
		if name, found := variable[parts[index-1]]; found {
			parts[index] = name
		}
	}
	return "/" + strings.Join(parts, "/")
}

// next notes a request and says what a test wants to happen to it.
func (f *front) next(request *http.Request) (drop bool, happens fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[request.Method+" "+pattern(request.URL.EscapedPath())]++
	switch {
	case f.drops > 0:
		f.drops--
		return true, fault{}
	case f.fault.count > 0:
		f.fault.count--
		return false, f.fault
	}
	return false, fault{}
}

func (f *front) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	drop, happens := f.next(request)
	if drop {
		connection, _, err := answer.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_ = connection.Close()
		return
	}
	select {
	case <-time.After(happens.delay):
	case <-request.Context().Done():
		return
	}
	if happens.status != 0 {
		if happens.retryAfter != "" {
			answer.Header().Set("Retry-After", happens.retryAfter)
		}
		refuse(answer, happens.status, happens.status*100+1, "as the test asks")
		return
	}
	if !f.knows(request) {
		answer.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		refuse(answer, http.StatusUnauthorized, 40101, "Unauthorized")
		return
	}
	if !f.judged(answer, request) {
		f.registry.Handler().ServeHTTP(answer, request)
	}
}

func (f *front) knows(request *http.Request) bool {
	if f.user == "" {
		return true
	}
	user, password, _ := request.BasicAuth()
	same := func(one, other string) bool {
		return subtle.ConstantTimeCompare([]byte(one), []byte(other)) == 1
	}
	return same(user, f.user) && same(password, f.password)
}

// segments are those of the path, decoded: the name of a subject may have a slash in it.
func segments(request *http.Request) []string {
	parts := strings.Split(strings.Trim(request.URL.EscapedPath(), "/"), "/")
	for index, part := range parts {
		if decoded, err := url.PathUnescape(part); err == nil {
			parts[index] = decoded
		}
	}
	return parts
}

// judged answers where the fake is wrong: it takes any schema as compatible, and does not tell a
// subject that is missing from a version that is.
func (f *front) judged(answer http.ResponseWriter, request *http.Request) bool {
	parts := segments(request)
	switch {
	case len(parts) >= 4 && parts[0] == "compatibility" && f.isRefused(parts[2], request):
		respond(answer, http.StatusOK, map[string]any{
			"is_compatible": false, "messages": []string{reason},
		})
	case len(parts) == 3 && parts[0] == "subjects" && request.Method == http.MethodPost &&
		f.isRefused(parts[1], request):
		message := "Schema being registered is incompatible with an earlier schema for subject \"" +
			parts[1] + "\", details: [" + reason + "]"
		refuse(answer, http.StatusConflict, http.StatusConflict, message)
	case len(parts) == 4 && parts[0] == "subjects" && request.Method == http.MethodGet &&
		!f.registry.SubjectExists(parts[1]):
		refuse(answer, http.StatusNotFound, 40401, "Subject '"+parts[1]+"' not found.")
	default:
		return false
	}
	return true
}

const reason = "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'x' has " +
	"no default value and is missing in the old schema', additionalInfo:'x'}"

// isRefused says whether the schema in the request is incompatible: a test wants that of the
// subject, and the schema is not registered there yet.
func (f *front) isRefused(subject string, request *http.Request) bool {
	f.mu.Lock()
	refused := f.refuses[subject]
	f.mu.Unlock()
	if !refused || !f.registry.SubjectExists(subject) {
		return false
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return false
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	var schema sr.Schema
	if json.Unmarshal(body, &schema) != nil {
		return false
	}
	for version := 1; ; version++ {
		known, found := f.registry.GetSchema(subject, version)
		if !found {
			return true
		}
		if known.Schema.Schema == schema.Schema {
			return false
		}
	}
}

func respond(answer http.ResponseWriter, status int, body any) {
	answer.Header().Set("Content-Type", contentType)
	answer.WriteHeader(status)
	// Errors mean that the client is gone.
	_ = json.NewEncoder(answer).Encode(body)
}

func refuse(answer http.ResponseWriter, status, code int, message string) {
	respond(answer, status, map[string]any{"error_code": code, "message": message})
}

// number is a parameter of a request to the control; zero where it is missing.
func number(request *http.Request, name string) int {
	text := request.FormValue(name)
	if text == "" {
		return 0
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return value
}

func (f *front) setFault(_ http.ResponseWriter, request *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault{
		status: number(request, "status"), count: number(request, "count"),
		delay:      time.Duration(number(request, "delayMs")) * time.Millisecond,
		retryAfter: request.FormValue("retryAfter"),
	}
}

func (f *front) setDrops(_ http.ResponseWriter, request *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drops = number(request, "count")
}

func (f *front) setCompatibility(answer http.ResponseWriter, request *http.Request) {
	mode := request.FormValue("mode")
	if mode != "refuse" && mode != "allow" {
		http.Error(answer, "mode is refuse or allow", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuses[request.FormValue("subject")] = mode == "refuse"
}

func (f *front) state(answer http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	respond(answer, http.StatusOK, f.counts)
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return listener
}

// settings of TLS with the certificate of the server, and the authority of its clients if they need
// certificates. Only HTTP/1.1: connections are dropped, not streams.
func settings(cert, key, clientCA string) *tls.Config {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		panic(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if clientCA != "" {
		pem, err := os.ReadFile(clientCA)
		if err != nil {
			panic(err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			panic("no certificate in " + clientCA)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config
}

func main() {
	user := flag.String("user", "", "who may ask; anybody without it")
	password := flag.String("password", "", "the password of the user")
	cert := flag.String("cert", "", "a certificate in PEM, for TLS")
	key := flag.String("key", "", "its key in PEM")
	clientCA := flag.String("client-ca", "", "the authority that clients need a certificate of")
	flag.Parse()
	f := &front{
		registry: srfake.NewRegistry(), user: *user, password: *password,
		refuses: map[string]bool{}, counts: map[string]int{},
	}
	listener, control, scheme := listen(), listen(), "http"
	address := listener.Addr().String()
	if *cert != "" {
		scheme = "https"
		listener = tls.NewListener(listener, settings(*cert, *key, *clientCA))
	}
	paths := http.NewServeMux()
	paths.HandleFunc("POST /control/fault", f.setFault)
	paths.HandleFunc("POST /control/drop", f.setDrops)
	paths.HandleFunc("POST /control/compatibility", f.setCompatibility)
	paths.HandleFunc("GET /control/counts", f.state)
	go func() { panic(http.Serve(listener, f)) }()
	go func() { panic(http.Serve(control, paths)) }()
	fmt.Printf("%s://%s\n", scheme, address)
	fmt.Println(control.Addr())
	// Whoever started it holds the other end.
	_, _ = io.Copy(io.Discard, os.Stdin)
}
