(** Waits and signals: where happens-before comes from, and why one run shows
    that no run deadlocks.

    Events run one at a time in some order.  An event may run when all that
    precede it in its lane have run and each of its waits is met: counter c has
    reached v.  When it has run, it adds [signals e c] to counter c.  Counters only
    grow.

    1. If the program can run to its end in one order, no order gets stuck.
    2. Whatever the rules of [hb] below derive from lanes, waits and signals does
       hold in every run.
    3. So if those rules order all conflicting events, all complete runs end in the
       same memory and read the same values. *)

From Coq Require Import List Arith Lia Bool Permutation.
From Algocc Require Import Confluence.
Import ListNotations.

Section Counters.
  Context {event counter : Type}.
  Variable event_dec : forall e f : event, {e = f} + {e <> f}.

  Variable program : list event.
  Variable lane_before : event -> event -> Prop.      (* earlier in the same lane *)
  Variable waits : event -> list (counter * nat).     (* counter >= value *)
  Variable signals : event -> counter -> nat.         (* increments *)

  (** The value of counter [c] after the events [es]. *)
  Definition value_of (c : counter) (es : list event) : nat :=
    list_sum (map (fun e => signals e c) es).

  Definition ready (done : list event) (e : event) : Prop :=
    (forall f, lane_before f e -> In f done) /\
    (forall c v, In (c, v) (waits e) -> v <= value_of c done).

  (** [l] without the events in [away]. *)
  Definition without (away l : list event) : list event :=
    filter (fun x => if in_dec event_dec x away then false else true) l.

  Lemma in_without x away l : In x (without away l) <-> In x l /\ ~ In x away.
  Proof.
    unfold without. rewrite filter_In. destruct (in_dec event_dec x away); intuition congruence.
  Qed.

  Lemma NoDup_prefix (l l' : list event) : NoDup (l ++ l') -> NoDup l.
  Proof.
    induction l as [|x l IH]; intros nd; [constructor|].
    inversion_clear nd as [|? ? Hx nd']. constructor; [|auto].
    intros H; apply Hx, in_or_app; auto.
  Qed.

  (** A run, possibly unfinished, first event first. *)
  Inductive run : list event -> Prop :=
  | run_start : run []
  | run_next es e : run es -> In e program -> ~ In e es -> ready es e -> run (es ++ [e]).

  Definition complete (es : list event) : Prop := forall e, In e program -> In e es.

  Lemma run_distinct es : run es -> NoDup es.
  Proof.
    induction 1 as [|es e _ IH _ Hn _]; [constructor|].
    apply Permutation_NoDup with (e :: es); [apply Permutation_cons_append|].
    constructor; assumption.
  Qed.

  Lemma run_inside es : run es -> forall e, In e es -> In e program.
  Proof.
    induction 1 as [|es e _ IH Hin _ _]; intros f Hf; [destruct Hf|].
    apply in_app_or in Hf as [Hf|[<-|[]]]; auto.
  Qed.

  (** Each event of a run was ready when its turn came. *)
  Lemma run_ready es : run es -> forall before e after,
    es = before ++ e :: after -> ready before e.
  Proof.
    induction 1 as [|es f _ IH _ _ Hr]; intros before e after E.
    - destruct before; discriminate.
    - destruct (exists_last (l := e :: after)) as (rest & last & El); [discriminate|].
      rewrite El, app_assoc in E. apply app_inj_tail in E as [-> ->].
      destruct rest as [|e' rest]; cbn in El; injection El as -> ->.
      + rewrite app_nil_r in Hr. assumption.
      + apply (IH before e' rest). reflexivity.
  Qed.

  (** ** No deadlock *)

  Lemma value_of_cons c e es : value_of c (e :: es) = signals e c + value_of c es.
  Proof. reflexivity. Qed.

  Lemma value_of_app c es es' : value_of c (es ++ es') = value_of c es + value_of c es'.
  Proof. unfold value_of. rewrite map_app, list_sum_app. reflexivity. Qed.

  Lemma value_of_incl c es : forall es', NoDup es -> (forall e, In e es -> In e es') ->
    value_of c es <= value_of c es'.
  Proof.
    induction es as [|e es IH]; intros es' nd H; [apply Nat.le_0_l|].
    inversion_clear nd as [|? ? Hn nd'].
    destruct (in_split e es' (H e (or_introl eq_refl))) as (a & b & ->).
    rewrite value_of_cons, value_of_app, value_of_cons.
    assert (value_of c es <= value_of c (a ++ b)); [|rewrite value_of_app in *; lia].
    apply IH; [assumption|]. intros f Hf.
    specialize (H f (or_intror Hf)). apply in_app_or in H as [?|[->|?]].
    - apply in_or_app; auto.
    - contradiction.
    - apply in_or_app; auto.
  Qed.

  (** More that is done never makes an event less ready. *)
  Lemma ready_mono es es' e :
    NoDup es -> (forall f, In f es -> In f es') -> ready es e -> ready es' e.
  Proof.
    intros nd H [Hl Hw]. split; [auto|]. intros c v Hv.
    apply Nat.le_trans with (value_of c es); [auto|]. apply value_of_incl; assumption.
  Qed.

  Lemma first_missing (done es : list event) :
    (exists e, In e es /\ ~ In e done) ->
    exists before e after, es = before ++ e :: after /\ ~ In e done /\
      forall f, In f before -> In f done.
  Proof.
    induction es as [|g es IH]; intros (e & He & Hn); [destruct He|].
    destruct (in_dec event_dec g done) as [Hg|Hg].
    - destruct IH as (a & f & b & -> & Hf & Ha).
      { exists e. split; [|assumption]. destruct He as [->|]; [contradiction|assumption]. }
      exists (g :: a), f, b. repeat split; auto. intros h [<-|Hh]; auto.
    - exists [], g, es. repeat split; auto. intros h [].
  Qed.

  (** If some run is complete, each run that isn't can go on. *)
  Theorem no_deadlock whole partial :
    run whole -> complete whole -> run partial -> ~ complete partial ->
    exists e, run (partial ++ [e]).
  Proof.
    intros Rw Cw Rp Np.
    assert (M : exists e, In e program /\ ~ In e partial).
    { destruct (Forall_Exists_dec (fun e => In e partial)
                  (fun e => in_dec event_dec e partial) program) as [F|X].
      - exfalso. apply Np. intros e He. rewrite Forall_forall in F. auto.
      - apply Exists_exists in X. exact X. }
    destruct M as (e0 & H0 & N0).
    destruct (first_missing partial whole) as (a & e & b & E & Hn & Ha).
    { exists e0. auto. }
    exists e. constructor; try assumption.
    - apply (run_inside whole Rw). rewrite E. apply in_or_app; cbn; auto.
    - apply ready_mono with a; [|assumption|].
      + pose proof (run_distinct whole Rw) as nd. rewrite E in nd.
        apply NoDup_prefix with (e :: b), nd.
      + apply (run_ready whole Rw) with b, E.
  Qed.

  (** ** Happens-before *)

  (** [s] happens before [e], if e waits for c to reach v, and v is out of reach
      without s, without what comes after s, and without e and what comes after e:
      none of these can have run before e when s has not. *)
  Inductive hb : event -> event -> Prop :=
  | hb_lane e f : lane_before e f -> hb e f
  | hb_trans e f g : hb e f -> hb f g -> hb e g
  | hb_wait s e c v after_s after_e :
      In (c, v) (waits e) ->
      (forall x, In x after_s -> hb s x) ->
      (forall x, In x after_e -> hb e x) ->
      value_of c (without (s :: e :: after_s ++ after_e) program) < v ->
      hb s e.

  (** The rules are sound: in every run, finished or not, what happens before an
      event has run before it. *)
  Theorem hb_sound es : run es -> forall a b, hb a b ->
    forall before after, es = before ++ b :: after -> In a before.
  Proof.
    intros R. pose proof (run_distinct es R) as nd.
    induction 1 as [a b Hl|a b d _ IH1 _ IH2|s e c v after_s after_e Hw _ IHs _ IHe Hv];
      intros before after E.
    - apply (run_ready es R before b after E), Hl.
    - pose proof (IH2 before after E) as Hb.
      apply in_split in Hb as (x & y & ->).
      apply in_or_app. left. apply (IH1 x (y ++ d :: after)).
      rewrite E, <- app_assoc. reflexivity.
    - destruct (in_dec event_dec s before) as [|Hs]; [assumption|exfalso].
      pose proof (run_ready es R before e after E) as [_ Hready]. specialize (Hready c v Hw).
      rewrite E in nd.
      assert (He : ~ In e before).
      { intros H. apply NoDup_remove_2 in nd. apply nd, in_or_app; auto. }
      assert (value_of c before <= value_of c (without (s :: e :: after_s ++ after_e) program));
        [|lia].
      apply value_of_incl; [apply NoDup_prefix with (e :: after), nd|].
      intros x Hx. apply in_without. split.
      + apply (run_inside es R). rewrite E. apply in_or_app; auto.
      + assert (Split : exists p q, before = p ++ x :: q /\ es = p ++ x :: (q ++ e :: after)).
        { apply in_split in Hx as (p & q & ->). exists p, q. split; [reflexivity|].
          rewrite E, <- app_assoc. reflexivity. }
        destruct Split as (p & q & Ep & Ex).
        assert (Hp : forall y, In y p -> In y before).
        { intros y Hy. rewrite Ep. apply in_or_app; auto. }
        intros [<-|[<-|Hl]]; [auto|auto|].
        apply in_app_or in Hl as [Hl|Hl]; eauto.
  Qed.

  Corollary run_respects es : run es -> respects hb es.
  Proof.
    intros R. assert (G : forall before rest, es = before ++ rest -> respects hb rest).
    { intros before rest. revert before. induction rest as [|e rest IH]; intros before E.
      - constructor.
      - constructor.
        + intros f Hf C. apply in_split in Hf as (x & y & ->).
          pose proof (hb_sound es R f e C before _ E) as Hb.
          pose proof (run_distinct es R) as nd. rewrite E in nd.
          apply in_split in Hb as (p & q & ->).
          rewrite <- app_assoc in nd. cbn in nd. apply NoDup_remove_2 in nd.
          apply nd. do 2 (apply in_or_app; right). right. apply in_or_app. right. left. reflexivity.
        + apply (IH (before ++ [e])). rewrite E, <- app_assoc. reflexivity. }
    apply (G []). reflexivity.
  Qed.

  (** ** All complete runs agree *)

  Section Agreement.
    Context {location val : Type}.
    Variable location_dec : forall l m : location, {l = m} + {l <> m}.
    Variable reads writes : event -> list location.
    Variable effect : event -> list val -> location -> val.

    (** What the checker of Programs relies on.  If the rules of [hb] order all
        conflicting events, and the program can run to its end in one order, then
        no run deadlocks and all complete runs end in the same memory, each event
        having read the same values. *)
    Theorem all_runs_agree whole :
      NoDup program -> run whole -> complete whole -> race_free reads writes hb program ->
      (forall partial, run partial -> ~ complete partial -> exists e, run (partial ++ [e])) /\
      (forall es s, run es -> complete es ->
         (forall l, execute location_dec reads writes effect s es l =
                    execute location_dec reads writes effect s whole l) /\
         (forall e, observed event_dec location_dec reads writes effect e s es =
                    observed event_dec location_dec reads writes effect e s whole)).
    Proof.
      intros nd Rw Cw Hrf. split.
      - intros partial Rp Np. apply (no_deadlock whole); assumption.
      - assert (X : forall es, run es -> complete es -> execution hb program es).
        { intros es R C. split; [|apply run_respects, R].
          apply NoDup_Permutation; [assumption|apply run_distinct, R|].
          intros e. split; [apply C|apply run_inside, R]. }
        intros es s R C. apply (confluence _ _ _ _ _ hb program); auto.
    Qed.
  End Agreement.
End Counters.

Print Assumptions no_deadlock.
Print Assumptions hb_sound.
Print Assumptions all_runs_agree.
