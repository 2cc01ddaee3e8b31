(** The machine on which schedules are defined.

    Every rank has locations.  A location holds a value: the exact list of the
    inputs that have been reduced into it, with repetitions, in the order of the
    reduction.  An input is a pair (owner, chunk): the owner's own copy of that
    chunk.  The list [] means that nothing was written yet.

    A transfer reads one location of a rank and overwrites, or reduces into, one
    location of a (possibly the same) rank.  A step is a list of transfers: all
    of them read the state before the step; writes take effect after it.
    A transfer inside one rank is a local copy or a local reduction and is not a
    message.  A program in which messages are not simultaneous is a program with
    one transfer per step.

    This is the semigroup model: what a message carries is a reduction of
    inputs, and nothing can be taken out of a value again. *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Knowledge.
Import ListNotations.

Definition input := (nat * nat)%type.
Definition value := list input.
Definition state := nat -> nat -> value.

Record transfer := Transfer {
  src : nat; src_loc : nat;
  dst : nat; dst_loc : nat;
  reduces : bool  (* true: dst gets (dst reduced with src); false: dst gets src *)
}.

Definition write (s : state) (r l : nat) (v : value) : state :=
  fun r' l' => if (r' =? r) && (l' =? l) then v else s r' l'.

(** [receive old new t]: perform [t], reading from [old] and writing into [new]. *)
Definition receive (old new : state) (t : transfer) : state :=
  let sent := old (src t) (src_loc t) in
  write new (dst t) (dst_loc t)
      (if reduces t then new (dst t) (dst_loc t) ++ sent else sent).

Definition step (s : state) (ts : list transfer) : state := fold_left (receive s) ts s.
Definition run (s : state) (steps : list (list transfer)) : state := fold_left step steps s.

(** ** Counting messages *)

Definition crosses (t : transfer) : bool := negb (src t =? dst t).

(** Messages in all; messages sent and received by rank [r]. *)
Definition messages (steps : list (list transfer)) : nat := count crosses (concat steps).
Definition sent (r : nat) (steps : list (list transfer)) : nat :=
  count (fun t => crosses t && (src t =? r)) (concat steps).
Definition received (r : nat) (steps : list (list transfer)) : nat :=
  count (fun t => crosses t && (dst t =? r)) (concat steps).

(** All transfers stay among the ranks [0 .. n-1]. *)
Definition among (n : nat) (steps : list (list transfer)) : Prop :=
  forall t, In t (concat steps) -> src t < n /\ dst t < n.

Lemma sum_sent n steps : among n steps -> sum (fun r => sent r steps) n = messages steps.
Proof. intros H. apply (sum_counts crosses src). intros t Ht; apply H, Ht. Qed.

Lemma sum_received n steps : among n steps -> sum (fun r => received r steps) n = messages steps.
Proof. intros H. apply (sum_counts crosses dst). intros t Ht; apply H, Ht. Qed.

(** ** The traffic: each message with the value that it carried *)

Definition packet := (transfer * value)%type.

Definition packets_of_step (s : state) (ts : list transfer) : list packet :=
  map (fun t => (t, s (src t) (src_loc t))) (filter crosses ts).

Fixpoint packets (s : state) (steps : list (list transfer)) : list packet :=
  match steps with
  | [] => []
  | ts :: rest => packets_of_step s ts ++ packets (step s ts) rest
  end.

(** The transfers of the packets are the crossing transfers, so any count over
    the former is a count over the latter. *)
Lemma packets_transfers steps : forall s, map fst (packets s steps) = filter crosses (concat steps).
Proof.
  induction steps as [|ts steps IH]; intros s; [reflexivity|].
  cbn [packets concat]. rewrite map_app, IH, filter_app. f_equal.
  unfold packets_of_step. rewrite map_map. apply map_id.
Qed.

Lemma count_packets (p : transfer -> bool) s steps :
  count (fun pk => p (fst pk)) (packets s steps) = count (fun t => crosses t && p t) (concat steps).
Proof.
  assert (E : forall l : list packet,
             map fst (filter (fun pk => p (fst pk)) l) = filter p (map fst l)).
  { induction l as [|a l IH]; [reflexivity|]; cbn. destruct (p (fst a)); cbn; congruence. }
  unfold count at 1. rewrite <- (map_length fst), E, (packets_transfers steps s).
  unfold count. f_equal. induction (concat steps) as [|t l IH]; [reflexivity|].
  cbn. destruct (crosses t); cbn; [destruct (p t)|]; congruence.
Qed.

(** ** From the machine to knowledge

    Fix a kind of input, [about].  A value is *pure* if all its inputs are of
    that kind.  Only pure values can end up in a pure output, for nothing can be
    taken out of a value.  So pure non-empty values are all that matters for
    that kind, and a packet whose first input is of another kind is no message
    for it. *)

Section About.
  Variable about : input -> bool.

  Definition pure (v : value) : Prop := forall x, In x v -> about x = true.

  Definition head_about (v : value) : bool :=
    match v with [] => false | x :: _ => about x end.

  (** Every input in a pure value of rank [r] is known to [r]. *)
  Definition covers (s : state) (K : knowledge input) : Prop :=
    forall r l, pure (s r l) -> forall x, In x (s r l) -> K r x = true.

  Definition as_message (pk : packet) : message input :=
    Message (src (fst pk)) (dst (fst pk)) (fun _ => true).

  Definition about_messages (pks : list packet) : list (message input) :=
    map as_message (filter (fun pk => head_about (snd pk)) pks).

  Lemma pure_head v x : pure v -> In x v -> head_about v = true.
  Proof. destruct v as [|y v]; [easy|]. intros H _. apply H. left; reflexivity. Qed.

  Lemma pure_app v w : pure (v ++ w) -> pure v /\ pure w.
  Proof. intros H; split; intros x Hx; apply H, in_or_app; auto. Qed.

  (** Copying and reducing preserve [covers], if a message is delivered whenever
      the transfer is a message of this kind. *)
  Lemma covers_receive old new K0 K t :
    covers old K0 -> below K0 K -> covers new K ->
    covers (receive old new t)
           (in_sequence K (about_messages (packets_of_step old [t]))).
  Proof.
    intros Hold HK Hnew. set (K' := in_sequence K _).
    assert (grow : below K K') by apply in_sequence_grows.
    assert (told : pure (old (src t) (src_loc t)) ->
                   forall x, In x (old (src t) (src_loc t)) -> K' (dst t) x = true).
    { intros Hp x Hx. pose proof (HK _ _ (Hold _ _ Hp x Hx)) as Hk.
      unfold K', packets_of_step; cbn [filter]. unfold crosses.
      destruct (Nat.eqb_spec (src t) (dst t)) as [e|ne]; cbn.
      - rewrite <- e; assumption.
      - unfold about_messages; cbn [filter map snd]. rewrite (pure_head _ x) by assumption.
        cbn. unfold deliver, tells; cbn. rewrite Nat.eqb_refl, Hk. apply orb_true_r. }
    intros r l. unfold receive, write.
    destruct ((r =? dst t) && (l =? dst_loc t)) eqn:E; intros Hp x Hx.
    - apply andb_true_iff in E as [E _]. apply Nat.eqb_eq in E as ->.
      destruct (reduces t).
      + apply pure_app in Hp as [Hp Hp']. apply in_app_or in Hx as [Hx|Hx].
        * apply grow, (Hnew _ _ Hp), Hx.
        * apply told; assumption.
      + apply told; assumption.
    - apply grow, (Hnew _ _ Hp), Hx.
  Qed.

  Lemma packets_of_step_cons s t ts :
    packets_of_step s (t :: ts) = packets_of_step s [t] ++ packets_of_step s ts.
  Proof. unfold packets_of_step; cbn; destruct (crosses t); reflexivity. Qed.

  Lemma about_messages_app p q : about_messages (p ++ q) = about_messages p ++ about_messages q.
  Proof. unfold about_messages; rewrite filter_app, map_app; reflexivity. Qed.

  Lemma covers_step s K ts :
    covers s K -> covers (step s ts) (in_sequence K (about_messages (packets_of_step s ts))).
  Proof.
    intros H0. unfold step.
    assert (G : forall ts new K1, below K K1 -> covers new K1 ->
              covers (fold_left (receive s) ts new)
                     (in_sequence K1 (about_messages (packets_of_step s ts)))).
    { clear ts. induction ts as [|t ts IH]; intros new K1 HK Hnew; [assumption|].
      rewrite packets_of_step_cons, about_messages_app, in_sequence_app. apply IH.
      - apply below_trans with K1; [assumption|apply in_sequence_grows].
      - apply covers_receive with K; assumption. }
    apply G; [apply below_refl|assumption].
  Qed.

  (** The run of a program knows no more than its messages of this kind, one
      after the other, can spread. *)
  Lemma covers_run steps : forall s K,
    covers s K -> covers (run s steps) (in_sequence K (about_messages (packets s steps))).
  Proof.
    induction steps as [|ts steps IH]; intros s K H; [assumption|].
    cbn [run fold_left packets]. rewrite about_messages_app, in_sequence_app.
    apply IH, covers_step, H.
  Qed.
End About.

(** ** Steps with one writer per location *)

(** A location that nothing is written to keeps its value. *)
Lemma step_unwritten s ts r l :
  (forall t, In t ts -> (dst t, dst_loc t) <> (r, l)) -> step s ts r l = s r l.
Proof.
  unfold step. intros H. cut (forall new, fold_left (receive s) ts new r l = new r l); [auto|].
  induction ts as [|t ts IH]; intros new; [reflexivity|].
  cbn [fold_left]. rewrite IH by (intros; apply H; right; assumption).
  unfold receive, write. destruct (Nat.eqb_spec r (dst t)), (Nat.eqb_spec l (dst_loc t)); cbn; auto.
  destruct (H t (or_introl eq_refl)); congruence.
Qed.

(** A location that exactly one transfer writes gets what that transfer says. *)
Lemma step_written s ts t :
  NoDup (map (fun t => (dst t, dst_loc t)) ts) -> In t ts ->
  step s ts (dst t) (dst_loc t) =
    (if reduces t then s (dst t) (dst_loc t) ++ s (src t) (src_loc t)
     else s (src t) (src_loc t)).
Proof.
  intros nd Hin. apply in_split in Hin as (a & b & ->).
  rewrite map_app in nd; cbn in nd. apply NoDup_remove_2 in nd.
  unfold step. rewrite fold_left_app. cbn [fold_left].
  assert (same : forall us new, (forall u, In u us -> (dst u, dst_loc u) <> (dst t, dst_loc t)) ->
            fold_left (receive s) us new (dst t) (dst_loc t) = new (dst t) (dst_loc t)).
  { induction us as [|u us IH]; intros new H; [reflexivity|].
    cbn [fold_left]. rewrite IH by (intros; apply H; right; assumption).
    unfold receive, write.
    destruct (Nat.eqb_spec (dst t) (dst u)), (Nat.eqb_spec (dst_loc t) (dst_loc u)); cbn; auto.
    destruct (H u (or_introl eq_refl)); congruence. }
  assert (away : forall us, (forall u, In u us -> In u (a ++ b)) ->
            forall u, In u us -> (dst u, dst_loc u) <> (dst t, dst_loc t)).
  { intros us Hus u Hu e. apply nd. rewrite <- map_app, <- e.
    apply (in_map (fun t => (dst t, dst_loc t))), Hus, Hu. }
  rewrite same by (apply away; intros; apply in_or_app; auto).
  unfold receive at 1, write. rewrite !Nat.eqb_refl; cbn.
  rewrite same by (apply away; intros; apply in_or_app; auto). reflexivity.
Qed.
