// A Pub/Sub for tests: Google's own fake (pstest) behind a front that does what the fake does not.
//
// The front refuses stale acknowledgements of exactly-once subscriptions as the service does, fails
// calls where a test asks for it, and counts. It is controlled over HTTP:
//
//	POST /create?topic=T&subscription=S[&ordering=1][&exactlyOnce=1]
//	POST /publish?topic=T[&key=K][&attribute=NAME]  a message per line of the body; the attribute,
//	                                                if there is one, is the line too
//	POST /delete?subscription=S
//	POST /advance?seconds=N                         moves the clock: deadlines pass
//	POST /fault?kind=KIND&count=N                   the next N calls of a kind fail, see fails
//	POST /flood?messages=N                          streams get N messages, the lines of the body in
//	                                                turn, as fast as they take them, see flood
//	GET  /state                                     counts, as JSON
//
// It prints two lines, the addresses of gRPC and of HTTP, and ends with its standard input.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

type front struct {
	pb.SubscriberServer
	mu sync.Mutex
	// Calls of a kind that are still to fail.
	faults map[string]int
	// Of exactly-once subscriptions: the ack id that counts, by message.
	current     map[string]string
	exactlyOnce map[string]bool
	counts      map[string]int
	// For benchmarks; nil otherwise.
	flood atomic.Pointer[flood]
}

// flood is what all streams together get instead of messages that were published, which the fake
// hands out too slowly to measure who takes them. Nothing is kept of them but how many there are.
type flood struct {
	mu        sync.Mutex
	changed   *sync.Cond
	published *timestamppb.Timestamp
	lines     [][]byte
	messages  int
	sent      int
	acked     int
}

// Messages of an answer: about 100 kB.
const floodAnswer = 100

// send gives a stream its messages, as many as may be unacknowledged by what it asks first.
func (w *flood) send(stream pb.Subscriber_StreamingPullServer) error {
	asked, err := stream.Recv()
	if err != nil {
		return err
	}
	most := int(asked.MaxOutstandingMessages)
	go func() {
		for err == nil {
			_, err = stream.Recv()
		}
	}()
	for {
		w.mu.Lock()
		for w.sent == w.messages || w.sent-w.acked >= most {
			if stream.Context().Err() != nil {
				w.mu.Unlock()
				return stream.Context().Err()
			}
			w.changed.Wait()
		}
		first, last := w.sent, min(w.sent+floodAnswer, w.messages)
		w.sent = last
		w.mu.Unlock()
		answer := &pb.StreamingPullResponse{}
		for number := first; number < last; number++ {
			id := strconv.Itoa(number)
			message := &pb.PubsubMessage{
				Data: w.lines[number%len(w.lines)], MessageId: id, PublishTime: w.published,
			}
			received := &pb.ReceivedMessage{AckId: id, Message: message}
			answer.ReceivedMessages = append(answer.ReceivedMessages, received)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (w *flood) acknowledge(count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked += count
	w.changed.Broadcast()
}

// fails says whether this call is one of those that a test lets fail.
func (f *front) fails(kind string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults[kind] == 0 {
		return false
	}
	f.faults[kind]--
	f.counts[kind]++
	return true
}

func (f *front) count(what string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what] += by
}

func message(ackID string) string {
	id, _, _ := strings.Cut(ackID, ":")
	return id
}

func (f *front) Acknowledge(
	ctx context.Context, request *pb.AcknowledgeRequest,
) (*emptypb.Empty, error) {
	f.count("acknowledgeCalls", 1)
	if flood := f.flood.Load(); flood != nil {
		flood.acknowledge(len(request.AckIds))
		return &emptypb.Empty{}, nil
	}
	if f.fails("ack-unavailable") {
		return nil, status.Error(codes.Unavailable, "try again")
	}
	if f.fails("ack-held") {
		// The answer is on its way for longer than a test needs to cut it off.
		time.Sleep(5 * time.Second)
	}
	if f.fails("ack-lost") {
		// The call looks like a success and does nothing: what at-least-once allows.
		return &emptypb.Empty{}, nil
	}
	if f.fails("ack-done-and-unavailable") {
		if _, err := f.SubscriberServer.Acknowledge(ctx, request); err != nil {
			return nil, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, id := range request.AckIds {
			delete(f.current, message(id))
		}
		return nil, status.Error(codes.Unavailable, "the answer is lost")
	}
	if !f.isExactlyOnce(request.Subscription) {
		return f.SubscriberServer.Acknowledge(ctx, request)
	}
	temporary := f.fails("ack-temporary")
	refused := map[string]string{}
	var good []string
	f.mu.Lock()
	for index, id := range request.AckIds {
		switch {
		case f.current[message(id)] != id:
			refused[id] = "PERMANENT_FAILURE_INVALID_ACK_ID"
			f.counts["invalidAckIds"]++
		case temporary && index%2 == 0:
			refused[id] = "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"
		default:
			good = append(good, id)
			delete(f.current, message(id))
		}
	}
	f.mu.Unlock()
	if len(good) > 0 {
		acknowledged := &pb.AcknowledgeRequest{Subscription: request.Subscription, AckIds: good}
		if _, err := f.SubscriberServer.Acknowledge(ctx, acknowledged); err != nil {
			return nil, err
		}
	}
	if len(refused) == 0 {
		return &emptypb.Empty{}, nil
	}
	said := status.New(codes.FailedPrecondition, "some acknowledgements failed")
	said, err := said.WithDetails(&errdetails.ErrorInfo{
		Reason: "EXACTLY_ONCE_ACKID_FAILURE", Domain: "pubsub.googleapis.com", Metadata: refused,
	})
	if err != nil {
		return nil, err
	}
	return nil, said.Err()
}

func (f *front) isExactlyOnce(subscription string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exactlyOnce[subscription]
}

func (f *front) ModifyAckDeadline(
	ctx context.Context, request *pb.ModifyAckDeadlineRequest,
) (*emptypb.Empty, error) {
	f.count("extended", len(request.AckIds))
	if f.flood.Load() != nil {
		return &emptypb.Empty{}, nil
	}
	return f.SubscriberServer.ModifyAckDeadline(ctx, request)
}

func (f *front) StreamingPull(stream pb.Subscriber_StreamingPullServer) error {
	f.count("streams", 1)
	if flood := f.flood.Load(); flood != nil {
		return flood.send(stream)
	}
	for kind, code := range map[string]codes.Code{
		"unavailable":     codes.Unavailable,
		"unauthenticated": codes.Unauthenticated,
		"permission":      codes.PermissionDenied,
	} {
		if f.fails(kind) {
			return status.Error(code, "as the test asks")
		}
	}
	seen := &watched{Subscriber_StreamingPullServer: stream, front: f}
	err := f.SubscriberServer.StreamingPull(seen)
	// Who is gone will not acknowledge: tests do not wait until the leases have passed. (To move the
	// clock by many leases would make the fake forget old messages.)
	for ids := seen.taken(); len(ids) > 0; ids = seen.taken() {
		_, _ = f.SubscriberServer.ModifyAckDeadline(context.Background(),
			&pb.ModifyAckDeadlineRequest{Subscription: seen.subscription, AckIds: ids})
	}
	return err
}

// watched is a stream whose messages are noted as they go out.
type watched struct {
	pb.Subscriber_StreamingPullServer
	front        *front
	subscription string
	sent         []string
}

// taken gives the ack ids that went out.
func (w *watched) taken() []string {
	w.front.mu.Lock()
	defer w.front.mu.Unlock()
	ids := w.sent
	w.sent = nil
	return ids
}

func (w *watched) Send(response *pb.StreamingPullResponse) error {
	if w.front.fails("cut") {
		return status.Error(codes.Unavailable, "the stream is cut")
	}
	w.front.mu.Lock()
	for _, received := range response.ReceivedMessages {
		w.front.current[message(received.AckId)] = received.AckId
		w.front.counts["delivered"]++
		w.sent = append(w.sent, received.AckId)
	}
	w.front.mu.Unlock()
	twice := w.front.fails("twice")
	if err := w.Subscriber_StreamingPullServer.Send(response); err != nil || !twice {
		return err
	}
	return w.Subscriber_StreamingPullServer.Send(response)
}

func (w *watched) Recv() (*pb.StreamingPullRequest, error) {
	request, err := w.Subscriber_StreamingPullServer.Recv()
	if err == nil {
		w.front.count("extended", len(request.ModifyDeadlineAckIds))
		if request.Subscription != "" {
			w.subscription = request.Subscription
		}
	}
	return request, err
}

type control struct {
	server *pstest.Server
	front  *front
	ahead  atomic.Int64
}

func number(request *http.Request, name string) int {
	value, err := strconv.Atoi(request.FormValue(name))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return value
}

func (c *control) create(_ http.ResponseWriter, request *http.Request) {
	ctx, server := request.Context(), &c.server.GServer
	topic, name := request.FormValue("topic"), request.FormValue("subscription")
	// It may be there, for another subscription.
	_, _ = server.CreateTopic(ctx, &pb.Topic{Name: topic})
	exactlyOnce := request.FormValue("exactlyOnce") != ""
	subscription := &pb.Subscription{
		Name: name, Topic: topic, AckDeadlineSeconds: 10,
		EnableMessageOrdering:     request.FormValue("ordering") != "",
		EnableExactlyOnceDelivery: exactlyOnce,
	}
	if _, err := server.CreateSubscription(ctx, subscription); err != nil {
		panic(err)
	}
	c.front.mu.Lock()
	c.front.exactlyOnce[name] = exactlyOnce
	c.front.mu.Unlock()
}

func (c *control) publish(_ http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	lines := bufio.NewScanner(request.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var attributes map[string]string
		if name := query.Get("attribute"); name != "" {
			attributes = map[string]string{name: lines.Text()}
		}
		data := []byte(lines.Text())
		c.server.PublishOrdered(query.Get("topic"), data, attributes, query.Get("key"))
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

func (c *control) delete(_ http.ResponseWriter, request *http.Request) {
	gone := &pb.DeleteSubscriptionRequest{Subscription: request.FormValue("subscription")}
	if _, err := c.server.GServer.DeleteSubscription(request.Context(), gone); err != nil {
		panic(err)
	}
}

func (c *control) advance(_ http.ResponseWriter, request *http.Request) {
	c.ahead.Add(int64(number(request, "seconds")) * int64(time.Second))
}

func (c *control) fault(_ http.ResponseWriter, request *http.Request) {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	c.front.faults[request.FormValue("kind")] = number(request, "count")
}

func (c *control) flood(_ http.ResponseWriter, request *http.Request) {
	messages := number(request, "messages")
	body, err := io.ReadAll(request.Body)
	if err != nil {
		panic(err)
	}
	flood := &flood{
		published: timestamppb.Now(), lines: bytes.Split(bytes.TrimSpace(body), []byte("\n")),
		messages: messages,
	}
	flood.changed = sync.NewCond(&flood.mu)
	c.front.flood.Store(flood)
}

func (c *control) state(answer http.ResponseWriter, _ *http.Request) {
	state := map[string]int{"published": 0, "acked": 0, "unacked": 0, "deliveries": 0}
	for _, message := range c.server.Messages() {
		state["published"]++
		state["deliveries"] += message.Deliveries
		if message.Acks > 0 {
			state["acked"]++
		} else {
			state["unacked"]++
		}
	}
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	for name, count := range c.front.counts {
		state[name] = count
	}
	if err := json.NewEncoder(answer).Encode(state); err != nil {
		panic(err)
	}
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return listener
}

func main() {
	server := pstest.NewServerWithAddress("127.0.0.1:0")
	c := &control{server: server, front: &front{
		SubscriberServer: &server.GServer,
		faults:           map[string]int{},
		current:          map[string]string{},
		exactlyOnce:      map[string]bool{},
		counts:           map[string]int{},
	}}
	server.SetTimeNowFunc(func() time.Time {
		return time.Now().Add(time.Duration(c.ahead.Load()))
	})
	service := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	pb.RegisterSubscriberServer(service, c.front)
	pb.RegisterPublisherServer(service, &server.GServer)
	grpcListener, httpListener := listen(), listen()
	go func() { panic(service.Serve(grpcListener)) }()
	paths := http.NewServeMux()
	paths.HandleFunc("POST /create", c.create)
	paths.HandleFunc("POST /publish", c.publish)
	paths.HandleFunc("POST /delete", c.delete)
	paths.HandleFunc("POST /advance", c.advance)
	paths.HandleFunc("POST /fault", c.fault)
	paths.HandleFunc("POST /flood", c.flood)
	paths.HandleFunc("GET /state", c.state)
	go func() { panic(http.Serve(httpListener, paths)) }()
	fmt.Println(grpcListener.Addr())
	fmt.Println(httpListener.Addr())
	// Whoever started it holds the other end.
	_, _ = io.Copy(io.Discard, os.Stdin)
}
